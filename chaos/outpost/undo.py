"""The steps that take a fault back, as they stand in a guard's orders and in the record of the fault.

{"cont": [[pid, start_ticks], ...]}                              continue these very processes
{"argv": ["nft", "delete", "table", "inet", "x"], "gone": {"table": "x"}}     run a command; where it fails, it is done
                                    all the same if the kernel shows no such thing (any more): a `table`, a `qdisc`
"""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING, Any

from chaos.outpost import netfilter, shaping
from chaos.outpost.processes import signal, threads
from chaos.outpost.shell import to_its_end
from chaos.outpost.tools import which
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND_S = 10.0
ATTEMPTS = 3
"""Somebody else may hold the lock of a table just then."""
PAUSE_S = 0.2
CONTINUED_S = 2.0
_GONE = {"table": netfilter.is_gone, "qdisc": shaping.is_gone}


def undo(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take every step, whatever becomes of the others: what was `done`, whether that is `ok`, and what was `said`."""
    return [_take(step) for step in steps]


def by_hand(step: object) -> str:
    """What a person would type to take a step; empty for one that nobody understands."""
    try:
        if "cont" in step:  # type: ignore[operator]
            return " ".join(["kill -CONT", *(str(int(pid)) for pid, _ in step["cont"])])  # type: ignore[index]
        return shlex.join(step["argv"])  # type: ignore[index]
    except (LookupError, TypeError, ValueError):
        return ""


def _take(step: dict[str, Any]) -> dict[str, Any]:
    if not by_hand(step):
        return {
            "done": json.dumps(step)[:200],
            "ok": False,
            "said": "nobody understands this step, the record is damaged",
        }
    if "cont" in step:
        return _continue(step["cont"])
    return _run(step["argv"], step.get("gone") or {}, step.get("limit_s", COMMAND_S))


def _continue(processes: Sequence[Sequence[int]]) -> dict[str, Any]:
    said = [why for why in signal(processes, "CONT") if why and not why.endswith("has ended")]
    hidden = any("is hidden" in why for why in said)  # so nobody knows whether it is stopped
    until = time.monotonic() + CONTINUED_S
    while (stopped := _stopped(processes)) and time.monotonic() < until:
        time.sleep(0.01)
    told = ", ".join(str(pid) for pid, _ in processes)
    measured = f"{len(processes) - stopped} of {len(processes)} processes are not stopped"
    return {"done": f"CONT to pid {told}", "ok": not stopped and not hidden, "said": "; ".join([*said, measured])}


def _stopped(processes: Sequence[Sequence[int]]) -> int:
    return sum("T" in (states or {}) for states in threads(processes))


def _run(argv: Sequence[str], gone: dict[str, str], limit_s: float) -> dict[str, Any]:
    step: dict[str, Any] = {"done": " ".join(argv), "ok": False, "said": ""}
    program = which(argv[0])
    if program is None:
        return {**step, "said": f"there is no {argv[0]} on this host"}
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_S)
        step = {**step, **_once([program, *argv[1:]], limit_s)}
        if step["ok"]:
            break
        if gone and all(what in _GONE and _GONE[what](name) for what, name in gone.items()):
            return {**step, "ok": True, "said": f"there is none any more: {', '.join(gone.values())}"}
    return step


def _once(argv: Sequence[str], limit_s: float) -> dict[str, Any]:
    try:
        status, said = to_its_end(argv, limit_s)
    except Trouble as trouble:
        return {"said": trouble.text}
    return {"ok": not status, "said": said or (f"it ended with code {status}" if status else "")}
