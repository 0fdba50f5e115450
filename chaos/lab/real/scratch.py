"""A folder for what must not outlive a lab: its engine's home, sockets and discovery data.

It lies in the system's temporary folder under a name that is short enough for sockets. Its owner holds a lock that the
kernel gives up with the owner; what a killed owner left is found by its name and removed by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "pdchaos-lab-"
_LOCK = ".held"
_GRACE_S = 60.0
"""A younger folder without a held lock may be in the making."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A fresh folder, removed on leaving."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    with (folder / _LOCK).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def sweep() -> list[Path]:
    """Remove the folders of owners that are dead; which ones."""
    return [folder for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _swept(folder)]


def _swept(folder: Path) -> bool:
    try:
        if time.time() - folder.stat().st_mtime < _GRACE_S:
            return False
        with (folder / _LOCK).open("ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    except OSError:
        return False  # in use, gone, or somebody else's
    return True
