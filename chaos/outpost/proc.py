"""What /proc says of processes: the one reader of it for everything here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

GONE = frozenset("ZXx")
COMM = 15
"""The kernel cuts a process's name there."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STATE, _PARENT, _START = 0, 1, 19  # fields of a stat file behind the name
_boot: list[float] = []


class Stat(NamedTuple):
    """One process. It is told from a later one with its pid by when it started: clock ticks since boot."""

    pid: int
    name: str  # cut at 15 characters
    state: str  # one letter
    parent: int
    start_ticks: int

    @property
    def gone(self) -> bool:
        """Whether it has ended; a zombie has."""
        return self.state in GONE

    @property
    def start_time(self) -> float:
        """Seconds since the epoch."""
        return self.start_ticks / _TICKS_PER_S + boot_time()


def boot_time() -> float:
    """When this host booted, seconds since the epoch. Read once: it moves whenever the clock is set."""
    if not _boot:
        with Path("/proc/stat").open("rb") as file:
            _boot.append(next((float(line.split()[1]) for line in file if line.startswith(b"btime")), 0.0))
    return _boot[0]


def boot_id() -> str:
    """Tells one life of this host from the next."""
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def stat(pid: int) -> Stat | None:
    """One process, zombies too; None when there is none. Raises PermissionError where /proc hides it."""
    raw = read(f"/proc/{pid}/stat")
    if not raw:
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return None
        except PermissionError:
            raise PermissionError(f"process {pid} is hidden from this user") from None
        raw = read(f"/proc/{pid}/stat")  # it may have come or gone between the two
    return _stat(pid, raw)


def same(pid: int, start_ticks: int) -> Stat | None:
    """The process if it is still the one that started then, a zombie too; else None. Raises PermissionError."""
    found = stat(pid)
    return found if found is not None and found.start_ticks == start_ticks else None


def everybody() -> dict[int, Stat]:
    """Every process that can be seen."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names only
        if name.isdigit():
            one = _stat(int(name), read(f"/proc/{name}/stat"))
            if one is not None:
                found[one.pid] = one
    return found


def below(pid: int, everyone: dict[int, Stat]) -> list[Stat]:
    """All descendants of a process, in the order of their pids at each level; zombies too."""
    children: dict[int, list[Stat]] = {}
    for one in everyone.values():
        children.setdefault(one.parent, []).append(one)
    found, level = [], [pid]
    while level:
        level = [child.pid for parent in level for child in sorted(children.pop(parent, ()))]
        found += [everyone[pid] for pid in level]
    return found


def threads(pid: int) -> list[str]:
    """The ids of a process's threads; empty when there is no such process."""
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names only
    except OSError:
        return []


def thread_states(pid: int) -> Iterator[str]:
    """The state of each living thread of a process: one letter each."""
    for thread in threads(pid):
        one = _stat(pid, read(f"/proc/{pid}/task/{thread}/stat"))
        if one is not None and not one.gone:
            yield one.state


def words(pid: int) -> list[str]:
    """Its command line. One that set its own title has that as its first word."""
    raw = read(f"/proc/{pid}/cmdline").rstrip(b"\0")
    return raw.decode(errors="replace").split("\0") if raw else []


def title(pid: int) -> str:
    """Its command line, joined by spaces, as `ps` shows it."""
    return " ".join(words(pid)).strip()


def environment(pid: int) -> dict[str, str]:
    """Its environment as it was when it started; empty when it cannot be read."""
    raw = read(f"/proc/{pid}/environ").decode(errors="replace")
    return dict(word.partition("=")[::2] for word in raw.split("\0") if "=" in word)


def full_name(one: Stat) -> str:
    """Its name; where the kernel cut that, as much more as its command line tells."""
    if len(one.name) >= COMM:
        first = os.path.basename((words(one.pid) or [""])[0])  # noqa: PTH119 - no path need be made
        if first.startswith(one.name):
            return first
    return one.name


def sockets(pid: int) -> set[str]:
    """Inodes of the sockets that it has open. Raises OSError when it cannot be looked at."""
    found = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(entry.path)  # noqa: PTH115 - thousands of them
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def read(path: str | Path) -> bytes:
    """A file of the kernel's; empty when it cannot be read, which here means that the process is gone or not ours."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - thousands of them
            return file.read()
    except OSError:
        return b""


def _stat(pid: int, raw: bytes) -> Stat | None:
    """A stat file taken apart; the name in it may contain anything."""
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    if len(fields) <= _START:
        return None
    name = head.partition(b"(")[2].decode(errors="replace")
    return Stat(pid, name, fields[_STATE].decode(), int(fields[_PARENT]), int(fields[_START]))
