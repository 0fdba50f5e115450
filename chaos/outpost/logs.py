"""Logs on a host: whether they can be read and where they end, and how they are followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

from chaos.outpost.follow import finish, follow
from chaos.outpost.sources import NO_MATCH, cursors_of, is_glob

Json = dict[str, Any]


def probe(sources: list[Json]) -> list[Json]:
    """Of each source why it cannot be read now (empty: it can), and a cursor where it ends now (inode and size)."""
    return [_probed(str(source["what"])) for source in sources]


def _probed(path: str) -> Json:
    cursors = cursors_of(path)
    paths = [cursor["path"] for cursor in cursors.values()] if is_glob(path) else [path]
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


OPS: dict[str, Callable[..., Any]] = {"log.probe": probe, "log.finish": finish}
STREAMS: dict[str, Callable[..., None]] = {"follow": follow}
