"""Real Python processes with named threads, to be looked into from outside."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest
from engines import ENGINE

from chaos.engine.probes.locate import Located
from chaos.outpost.proc import stat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class Process:
    """A process of ours that stands for an engine."""

    popen: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def located(self) -> Located:
        found = stat(self.pid)
        assert found is not None
        return Located(self.pid, found.start_time, found.start_ticks)

    def end_control_thread(self) -> None:
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()
        assert "ended" == self.popen.stdout.readline().strip()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Start Python code and wait for its first line; ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str = ENGINE, *words: str, env: dict[str, str] | None = None) -> Process:
        popen = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        started.append(popen)
        assert popen.stdout is not None
        assert popen.stdout.readline()
        return Process(popen)

    yield run
    for popen in started:
        for child in psutil.Process(popen.pid).children() if popen.poll() is None else []:
            child.kill()
        popen.kill()
        popen.communicate()
