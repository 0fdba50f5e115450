"""The steps that take a fault back, as they stand in a guard's orders and in the record of the fault.

{"cont": [[pid, start_ticks], ...]}                              continue these very processes
{"argv": ["nft", "delete", "table", "inet", "x"], "ok": [0, 1]}  run a command; `ok`: exit statuses that will do
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

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


def undo(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take every step, whatever becomes of the others: what was `done`, whether that is `ok`, and what was `said`."""
    return [
        _continue(step["cont"])
        if "cont" in step
        else _run(step["argv"], step.get("ok", [0]), step.get("limit_s", COMMAND_S))
        for step in steps
    ]


def _continue(processes: Sequence[Sequence[int]]) -> dict[str, Any]:
    said = [why for why in signal(processes, "CONT") if why and not why.endswith("has ended")]
    until = time.monotonic() + CONTINUED_S
    while (stopped := _stopped(processes)) and time.monotonic() < until:
        time.sleep(0.01)
    told = ", ".join(str(pid) for pid, _ in processes)
    measured = f"{len(processes) - stopped} of {len(processes)} processes are not stopped"
    return {"done": f"CONT to pid {told}", "ok": not stopped, "said": "; ".join([*said, measured])}


def _stopped(processes: Sequence[Sequence[int]]) -> int:
    return sum("T" in (states or {}) for states in threads(processes))


def _run(argv: Sequence[str], ok: Sequence[int], limit_s: float) -> dict[str, Any]:
    step: dict[str, Any] = {"done": " ".join(argv), "ok": False, "said": ""}
    program = which(argv[0])
    if program is None:
        return {**step, "said": f"there is no {argv[0]} on this host"}
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_S)
        step = {**step, **_once([program, *argv[1:]], ok, limit_s)}
        if step["ok"]:
            break
    return step


def _once(argv: Sequence[str], ok: Sequence[int], limit_s: float) -> dict[str, Any]:
    try:
        status, said = to_its_end(argv, limit_s)
    except Trouble as trouble:
        return {"said": trouble.text}
    return {"ok": status in ok, "said": said}
