"""Log lines as the engine writes them: no level, no logger name; the scheduler on stderr, the access log on stdout.

Prefix and templates are those of sglang 0.5.14 (`configure_logger` in utils/common.py, uvicorn's access format). Each
line is one write, so lines of the control thread and of the loop never mix within a line.
"""

from __future__ import annotations

import os
import time
from http import HTTPStatus

_OUT, _ERR = 1, 2


def _write(fd: int, text: str) -> None:
    os.write(fd, text.encode(errors="replace"))


def _stamp() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def scheduler(message: str, rank: str = "") -> None:
    """A line of the scheduler or the tokenizer manager; a rank (`DP0 TP1`) is named only where there are several."""
    _write(_ERR, f"[{_stamp()}{' ' if rank else ''}{rank}] {message}\n")


def undated(text: str) -> None:
    """What is not written by the engine's logger: no date, no rank (tracebacks of servers, C++ libraries)."""
    _write(_ERR, f"{text}\n")


def access(peer: str, method: str, target: str, status: int) -> None:
    """A line of uvicorn's access log."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    _write(_OUT, f'[{_stamp()}] INFO:     {peer} - "{method} {target} HTTP/1.1" {status} {phrase}\n')


def gateway(level: str, module: str, message: str) -> None:
    """A line of the Rust router (stdout)."""
    _write(_OUT, f"{_stamp()} {level:>5} smg::{module}: {message}\n")


class Log:
    """The log of one rank's process."""

    def __init__(self, rank: str = "") -> None:
        self.rank = rank
        self._said: set[str] = set()

    def __call__(self, message: str) -> None:
        """Write a line."""
        scheduler(message, self.rank)

    def once(self, message: str) -> None:
        """Write the line unless this process has written it before (`logger.warning_once`)."""
        if message not in self._said:
            self._said.add(message)
            self(message)
