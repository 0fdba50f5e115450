"""Logs on a host: whether they can be read and where they end, and how they are followed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

from chaos.outpost import recent
from chaos.outpost.follow import finish, follow
from chaos.outpost.printed import complaint
from chaos.outpost.sources import FILE, NO_MATCH, cursors_of, is_glob

PROBED_S = 1.0
"""A command that has run for so long has found what it is to print."""
PROBED_AT_ONCE = 8

Json = dict[str, Any]


def probe(sources: list[Json], run: str = "probe") -> list[Json]:
    """Of each source why it cannot be read now (empty: it can), and cursors where it ends now.

    The cursor of a file has its `ino` and `size`, by which one sees whether it grows.
    """
    with ThreadPoolExecutor(PROBED_AT_ONCE) as threads:
        return list(threads.map(lambda source: _probed(source["kind"], source["what"], run), sources))


def _probed(kind: str, what: str, run: str) -> Json:
    if kind != FILE:
        now_ns = time.time_ns()
        return {"why": complaint(kind, what, run, PROBED_S), "cursors": {"0": {"since": now_ns}}}
    cursors = cursors_of(what)
    paths = [cursor["path"] for cursor in cursors.values()] if is_glob(what) else [what]
    why = next(filter(None, map(_unreadable, map(Path, paths))), "") if paths else NO_MATCH
    return {"why": why, "cursors": cursors}


def _unreadable(path: Path) -> str:
    """Why a file cannot be read; empty when it can. A pipe is not opened: that would wait for a writer."""
    try:
        if path.exists() and not path.is_file():
            return "not a regular file"
        with path.open("rb"):
            return ""
    except OSError as error:
        return error.strerror or str(error)


OPS: dict[str, Callable[..., Any]] = {"log.probe": probe, "log.finish": finish, **recent.OPS}
STREAMS: dict[str, Callable[..., None]] = {"follow": follow}
