"""Finds what a run left on this host and takes it back: faults, processes, tables and queues of the network.

What belongs to a run that lives is not touched unless somebody says so. It lives while whoever started it does, which
every record and every process of ours names.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from shlex import quote
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost import marks, proc, state
from chaos.outpost.guards import POLL_S, end
from chaos.outpost.proc import everybody
from chaos.outpost.tools import which
from chaos.outpost.trouble import Trouble
from chaos.outpost.undo import by_hand, undo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TABLES = "pdchaos_"
"""Our tables of nftables are called so: pdchaos_RUN_NUMBER."""
HANDLE = "7db1:"
"""Our queueing disciplines have it."""
TERM_S = 3.0
ASK_S = 10.0
LONGEST = 2000
"""Of a record, for whoever forgets it; a few steps are some hundred characters."""
_QDISC = re.compile(rf"^qdisc (\S+) {HANDLE} dev (\S+) (root|parent \S+)", re.MULTILINE)
_TABLE = re.compile(rf"^table (\S+) ({TABLES}(\S+)_\d+)$", re.MULTILINE)


def sweep(dry: bool = False, runs: Sequence[str] = (), processes: bool = True) -> list[dict[str, Any]]:
    """Everything of ours on this host, each with its `kind`, its `run`, `what` it is, and since when (0: unknown).

    `lives`: it belongs to a run that goes on, and is left alone, unless that is among `runs`. `gone`: it was taken back
    now (never when `dry`; processes only if `processes`); if not, `why` says why, and `by_hand` what a person may do
    there. `record` is a fault's file, whose name `forget` takes. A guard at work is waited for.
    """
    standing = [_Record(path, value) for path, value in _records()]
    for one in standing:
        one.lives = one.lives and one.run not in runs
    living = {one.run for one in standing if one.lives}
    found = [one.taken_back(dry=dry) for one in standing]
    found += _processes(dry or not processes, runs, guards={one.guard for one in standing})
    living |= {one["run"] for one in found if one["lives"]}
    return [*found, *_tables(dry, living), *_qdiscs(dry, [one for one in standing if one.lives])]


def _item(kind: str, run: str, what: str, *, lives: bool, since_s: float = 0.0) -> dict[str, Any]:
    return {
        "kind": kind,
        "record": "",
        "run": run,
        "what": what,
        "since_s": since_s,
        "lives": lives,
        "gone": False,
        "why": "",
        "by_hand": [],
    }


# ------------------------------------------------------------------------------------------------ faults


def _records() -> Iterator[tuple[Path, dict[str, Any]]]:
    for folder in state.private_folders():
        for path in sorted(folder.glob("*.json")):
            value = state.read(path)
            if value is not None or path.exists():  # else its guard has just done its work
                yield path, value or {}


class _Record:
    """A fault that stands, or whose record was left."""

    def __init__(self, path: Path, value: dict[str, Any]) -> None:
        self.path = path
        self.run = str(value.get("run", ""))
        steps = value.get("undo")
        self.damaged = not isinstance(steps, list)
        self.steps: list[Any] = steps if isinstance(steps, list) else []
        self.fault = str(value.get("fault", "")) or "unknown: its record is damaged"
        since_s = value.get("since")
        self.since_s = float(since_s) if isinstance(since_s, (int, float)) else 0.0
        self.guard = str(value.get("guard", ""))
        self.here = self.damaged or value.get("boot") == proc.boot_id()  # else it has booted since, which undid it
        self.lives = self.here and marks.lives(str(value.get("owner", ""))) and marks.lives(self.guard)

    def taken_back(self, *, dry: bool) -> dict[str, Any]:
        item = _item("fault", self.run, self.fault, lives=self.lives, since_s=self.since_s)
        item["record"] = str(self.path)
        if not (dry or self.lives):
            end(self.guard)
        if not (dry or self.lives or self.path.exists()):
            return {**item, "gone": True}
        if self.damaged:
            return {**item, "why": "it does not say what is to be undone", "by_hand": [f"cat {quote(str(self.path))}"]}
        if dry or self.lives:
            return item
        told = undo(self.steps) if self.here else []
        failed = [(step, one) for step, one in zip(self.steps, told) if not one["ok"]]
        if failed:
            why = "; ".join(f"{one['done']}: {one['said']}" for _, one in failed)
            return {
                **item,
                "why": why,
                "by_hand": [by_hand(step) or f"cat {quote(str(self.path))}" for step, _ in failed],
            }
        try:
            state.remove(self.path)
        except Trouble as trouble:
            return {**item, "why": trouble.text, "by_hand": [f"rm {quote(str(self.path))}"]}
        return {**item, "gone": True}


def forget(name: str) -> dict[str, Any]:
    """Remove a record (by the name of its file) whatever it says, and undo nothing: `path` and `text` of what was.

    Raises Trouble: `missing` where there is none, `lives` while its guard may still act.
    """
    paths = {path.stem: path for folder in state.private_folders() for path in sorted(folder.glob("*.json"))}
    found = paths.get(name)
    if found is None:
        raise Trouble("missing", ", ".join(paths))
    guard = str((state.read(found) or {}).get("guard", ""))
    if marks.lives(guard) and marks.is_of_here(guard):
        raise Trouble("lives", f"the guard of {name} is at work (pid {guard.partition(':')[0]}), and takes it back")
    text = proc.read(str(found)).decode(errors="replace")[:LONGEST]
    state.remove(found)
    return {"path": str(found), "text": text}


# ------------------------------------------------------------------------------------------------ processes


def _processes(dry: bool, runs: Sequence[str], guards: set[str]) -> list[dict[str, Any]]:
    """Processes that carry our marks, but for those that guard something."""
    found = []
    for one in everybody().values():
        environment = proc.environment(one.pid)
        run, owner = environment.get(marks.RUN), environment.get(marks.OWNER)
        if run is None or owner is None or one.gone or one.pid == os.getpid():
            continue
        if marks.named(one.pid) in guards:
            continue
        lives = run not in runs and marks.lives(owner)
        what = f"pid {one.pid}: {proc.title(one.pid)[:200]}"
        found.append((one, _item("process", run, what, lives=lives, since_s=one.start_time)))
    leftovers = [one for one, item in found if not item["lives"]]
    whys = {} if dry else _ended(leftovers)
    return [
        {
            **item,
            "gone": whys.get(one.pid) == "",
            "why": whys.get(one.pid, ""),
            "by_hand": [f"kill -KILL {one.pid}"] if whys.get(one.pid) else [],
        }
        for one, item in found
    ]


def _ended(processes: Sequence[proc.Stat]) -> dict[int, str]:
    """End processes, kindly first: by pid why one did not end, empty where it did."""
    whys = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in processes:
            if _there(one):
                try:
                    os.kill(one.pid, number)
                except OSError as error:
                    whys[one.pid] = error.strerror or str(error)
        until = time.monotonic() + TERM_S
        while any(map(_there, processes)) and time.monotonic() < until:
            time.sleep(POLL_S)
    return {one.pid: whys.get(one.pid, "it does not end") if _there(one) else "" for one in processes}


def _there(one: proc.Stat) -> bool:
    found = proc.same(one.pid, one.start_ticks)
    return found is not None and not found.gone


# ------------------------------------------------------------------------------------------------ the network


def _tables(dry: bool, living: set[str]) -> list[dict[str, Any]]:
    found = []
    for family, table, run in _TABLE.findall(_said(["nft", "list", "tables"])):
        lives = any(one.replace("-", "_") == run for one in living)
        item = _item("table", run, f"nft table {family} {table}", lives=lives)
        found.append(
            item
            if dry or lives
            else _by(item, ["nft", "delete", "table", family, table], {"table": table} if family == "inet" else {})
        )
    return found


def _qdiscs(dry: bool, living: Sequence[_Record]) -> list[dict[str, Any]]:
    found = []
    for kind, device, where in _QDISC.findall(_said(["tc", "qdisc", "show"])):
        of = [one.run for one in living for step in one.steps if {"tc", device} <= set(by_hand(step).split())]
        item = _item("qdisc", of[0] if of else "", f"{kind} {HANDLE} of {device}", lives=bool(of))
        found.append(item if dry or of else _by(item, ["tc", "qdisc", "del", "dev", device, *where.split()], {}))
    return found


def _by(item: dict[str, Any], argv: list[str], gone: dict[str, str]) -> dict[str, Any]:
    (step,) = undo([{"argv": argv, "gone": gone}])
    if step["ok"]:
        return {**item, "gone": True}
    return {**item, "why": step["said"], "by_hand": [by_hand({"argv": argv})]}


def _said(argv: list[str]) -> str:
    """What a tool of the host says; nothing where there is none or it may not."""
    program = which(argv[0])
    if program is None:
        return ""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [program, *argv[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S, check=False
        )
        return done.stdout.decode(errors="replace")
    return ""


OPS: dict[str, Callable[..., object]] = {"sweep": sweep, "sweep.forget": forget}
