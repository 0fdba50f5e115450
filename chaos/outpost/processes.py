"""Looks at processes and signals them. Each is named by its pid and when it started (clock ticks since boot)."""

from __future__ import annotations

import os
import signal as signals
from collections import Counter
from collections.abc import Sequence
from typing import Any, Callable

from chaos.outpost import proc
from chaos.outpost.find import find

MAX_THREADS = 200
UNREADABLE = "unreadable"
WORDS = {
    "R": "running", "S": "sleeping", "D": "disk-sleep", "T": "stopped", "t": "tracing-stop", "Z": "zombie",
    "X": "dead", "x": "dead", "K": "wake-kill", "W": "waking", "I": "idle", "P": "parked",
}  # fmt: skip

Named = Sequence[int]  # [pid, start ticks]


def look(roots: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The state of processes and of all that came of them.

    Of each root `pid`, `start_ticks` and `known` are told: children that were seen earlier, as this returned them.
    They stay listed, dead ones as dead, also when their parent died and another process adopted them.
    """
    everyone = proc.everybody()
    return [_look(root["pid"], root["start_ticks"], root.get("known", ()), everyone) for root in roots]


def _look(
    pid: int, start_ticks: int, known: Sequence[dict[str, Any]], everyone: dict[int, proc.Stat]
) -> dict[str, Any]:
    try:
        root = proc.same(pid, start_ticks)
        state = "dead" if root is None else WORDS.get(root.state, root.state)
    except PermissionError:
        root, state = None, UNREADABLE
    alive = state not in ("zombie", "dead")
    children = {child["pid"]: {**child, "alive": _lives(child, everyone)} for child in known}
    for child in proc.below(pid, everyone) if root is not None else ():
        children[child.pid] = {
            "pid": child.pid,
            "name": proc.full_name(child),
            "alive": not child.gone,
            "start_ticks": child.start_ticks,
            "start_time": child.start_time,
        }
    listed = [children[pid] for pid in sorted(children)]
    pids = [pid, *(child["pid"] for child in listed if child["alive"])] if alive else []
    return {"state": state, "alive": alive, "children": listed, "threads": _thread_names(pids)}


def _lives(child: dict[str, Any], everyone: dict[int, proc.Stat]) -> bool:
    found = everyone.get(child["pid"])
    return found is not None and found.start_ticks == child["start_ticks"] and not found.gone


def _thread_names(pids: Sequence[int]) -> list[str]:
    """Names of all threads, `name x3` for three of a name."""
    names: Counter[str] = Counter()
    for pid in pids:
        for thread in proc.threads(pid):
            name = proc.read(f"/proc/{pid}/task/{thread}/comm")
            if name:  # else it ended between two looks; the next one tells
                names[name.decode(errors="replace").rstrip("\n")] += 1
    shown = [name if count == 1 else f"{name} x{count}" for name, count in sorted(names.items())]
    return shown[:MAX_THREADS]


def processes(**selectors: int | str | None) -> list[dict[str, Any]]:
    """A server's process and everything that lives below it, itself first. Raises Trouble as `locate` does."""
    main = find(**selectors)
    return [
        {"pid": one.pid, "start_ticks": one.start_ticks, "name": proc.full_name(one), "title": proc.title(one.pid)}
        for one in (main, *proc.below(main.pid, proc.everybody()))
        if not one.gone
    ]


def threads(of: Sequence[Named]) -> list[dict[str, int] | None]:
    """How many threads of each process are in which state (one letter); None for one that has ended.

    A process is stopped only when every one of its threads is: the state that `ps` shows is the first thread's.
    """
    return [_thread_states(pid, start_ticks) for pid, start_ticks in of]


def _thread_states(pid: int, start_ticks: int) -> dict[str, int] | None:
    try:
        found = proc.same(pid, start_ticks)
    except PermissionError:
        return None
    if found is None or found.gone:
        return None
    return dict(Counter(proc.thread_states(pid))) or None


def signal(of: Sequence[Named], send: str) -> list[str]:
    """Send a signal (`STOP`; empty: only ask whether we may) to these very processes: why each was not, or empty."""
    number = signals.Signals[f"SIG{send}"] if send else 0
    return [_signal(pid, start_ticks, number) for pid, start_ticks in of]


def _signal(pid: int, start_ticks: int, number: int) -> str:
    try:
        fd = os.pidfd_open(pid)  # holds on to the process, so that the signal cannot reach a later one with its pid
    except ProcessLookupError:
        return f"process {pid} has ended"
    except (AttributeError, OSError):
        fd = None  # a kernel before 5.3
    try:
        found = proc.same(pid, start_ticks)
        if found is None or found.gone:
            return f"process {pid} has ended"
        if fd is None:
            os.kill(pid, number)
        else:
            signals.pidfd_send_signal(fd, number)
    except OSError as error:
        return f"process {pid}: {error.strerror or error}"
    finally:
        if fd is not None:
            os.close(fd)
    return ""


OPS: dict[str, Callable[..., object]] = {
    "look": look,
    "processes": processes,
    "threads": threads,
    "signal": signal,
}
