"""The processes of a host, read from its /proc."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Process:
    """One of them. `state` is the kernel's letter."""

    pid: int
    parent: int
    name: str
    state: str
    session: int
    command: str

    def __str__(self) -> str:
        return f"{self.pid} {self.name} [{self.state}] {self.command}".rstrip()


def all_processes() -> list[Process]:
    """Whatever there is; what ends meanwhile is left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        state, parent, _, session = rest.split()[:4]
        found.append(Process(int(folder.name), int(parent), name, state, int(session), command))
    return found


def held_files(pids: Iterable[int]) -> set[str]:
    """Paths of the files that these processes have mapped."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it ended meanwhile
            maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
            found |= {path for line in maps for path in line.split(None, 5)[5:]}
    return found


def kill(pid: int, number: signal.Signals) -> None:
    """Send a signal, if the process is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def below(roots: Iterable[int], processes: Iterable[Process]) -> set[int]:
    """The roots, their children, and so on."""
    found = set(roots)
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process.pid)
    waiting = list(found)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found
