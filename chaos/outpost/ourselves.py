"""How to start another process of ours from here, wherever our code came from."""

from __future__ import annotations

import os
import sys

_IN_MEMORY = "/proc/self/fd/"


def command(word: str, *arguments: str) -> tuple[list[str], tuple[int, ...]]:
    """What to execute for a word of the archive (`agent`, `guard`, `relay`), and the descriptors to pass on."""
    archive = getattr(globals().get("__loader__"), "archive", "")  # of zipimport
    if not archive:
        return [sys.executable, "-I", "-m", f"chaos.{'agent' if word == 'agent' else 'outpost'}", word, *arguments], ()
    fds = (int(archive[len(_IN_MEMORY) :]),) if archive.startswith(_IN_MEMORY) else ()
    return [sys.executable, "-I", archive, word, *arguments], fds


def keep_private() -> None:
    """Pass our code on to those processes alone that `command` is for."""
    for fd in command("agent")[1]:
        os.set_inheritable(fd, False)
