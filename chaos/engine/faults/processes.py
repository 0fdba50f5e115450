"""The processes of a node, and what the kernel says of them: /proc, one thread at a time.

A process is told from a later one with its pid by its start time. A process counts as stopped only when every one of
its threads is: the state that `ps` shows is the first thread's.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from chaos.engine.probes.locate import NotLocated, locate

if TYPE_CHECKING:
    from chaos.model.target import ServerSpec

_NUMBERS = re.compile(r"\d+")
STOPPED = frozenset("Tt")
GONE = frozenset("ZXx")
_STATE, _START = 0, 19  # fields of /proc/PID/stat behind the name


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a node."""

    pid: int
    start_ticks: int  # clock ticks since boot, as in /proc/PID/stat
    name: str = ""


def processes_of(spec: ServerSpec) -> tuple[Process, ...]:
    """A server's main process and everything below it, main first. Raises NotLocated."""
    found = locate(spec)
    if found is None:
        raise NotLocated("the target gives no pid, pidfile or port")
    try:
        main = psutil.Process(found.pid)
        handles = [main, *main.children(recursive=True)]
    except psutil.Error as error:
        raise NotLocated(f"process {found.pid} went away") from error
    known = [process for handle in handles if (process := _process(handle)) is not None]
    if not known or known[0].pid != found.pid:
        raise NotLocated(f"process {found.pid} went away")
    return tuple(known)


def called(processes: tuple[Process, ...], child: str) -> tuple[Process, ...]:
    """The children whose name or title contains `child`."""
    return tuple(process for process in processes[1:] if child in process.name or child in _title(process))


class NoSuchRank(Exception):
    """A node has no process of this rank; the text says what it has."""


def rank_of(processes: tuple[Process, ...], rank: int, begins: str) -> Process:
    """The child that is this rank, in the order of the numbers in their titles (`…_DP1_TP0`). Raises NoSuchRank."""
    if not begins:
        raise NoSuchRank("runs an engine whose pack does not say which processes are ranks")
    titled = [(title, process) for process in processes[1:] if (title := _title(process)).startswith(begins)]
    if rank >= len(titled):
        there = ", ".join(sorted(title.split()[0] for title, _ in titled)) or "none"
        raise NoSuchRank(f"has no rank {rank} (processes of ranks: {there})")
    titled.sort(key=lambda each: [int(number) for number in _NUMBERS.findall(each[0])])
    return titled[rank][1]


def _title(process: Process) -> str:
    try:
        return " ".join(psutil.Process(process.pid).cmdline())
    except psutil.Error:
        return ""


def is_gone(process: Process) -> bool:
    """Whether the process has ended: no such pid, a zombie, or a later process with its pid."""
    fields = _stat(process.pid)
    return fields is None or fields[_STATE] in GONE or int(fields[_START]) != process.start_ticks


def thread_states(process: Process) -> Counter[str] | None:
    """How many threads of a process are in which state; None when it has ended."""
    if is_gone(process):
        return None
    states: Counter[str] = Counter()
    try:
        threads = os.listdir(f"/proc/{process.pid}/task")  # noqa: PTH208 - names only
    except OSError:
        return None
    for thread in threads:
        fields = _stat(process.pid, thread)
        if fields is not None and fields[_STATE] not in GONE:
            states[fields[_STATE]] += 1
    return states or None


def is_stopped(process: Process) -> bool:
    """Whether every thread is stopped."""
    states = thread_states(process)
    return states is not None and states.keys() <= STOPPED


def is_held(process: Process) -> bool:
    """Whether any thread is stopped."""
    states = thread_states(process)
    return states is not None and bool(states.keys() & STOPPED)


def send(process: Process, number: int) -> str:
    """Send a signal to this very process; the empty string, or why it could not be sent."""
    if is_gone(process):
        return f"process {process.pid} has ended"
    try:
        os.kill(process.pid, number)
    except OSError as error:
        return f"process {process.pid}: {error.strerror}"
    return ""


def _process(handle: psutil.Process) -> Process | None:
    fields = _stat(handle.pid)
    if fields is None or fields[_STATE] in GONE:
        return None
    try:
        name = handle.name()
    except psutil.Error:
        name = ""
    return Process(handle.pid, int(fields[_START]), name)


def _stat(pid: int, thread: str = "") -> list[str] | None:
    """The fields of a stat file behind the name (which may contain anything); None when there is no such process."""
    path = Path(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat")
    try:
        return path.read_bytes().rpartition(b")")[2].decode().split()
    except (OSError, ValueError):
        return None
