"""Guards as whoever breaks something arms them: before anything is touched, with a record of what will be undone."""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost import guard, marks, proc, state
from chaos.outpost.trouble import Trouble
from chaos.outpost.undo import undo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

READY_S = 10.0
"""Starting Python takes 50 ms; a machine that starves needs longer."""
UNDONE_S = 60.0
"""A handful of commands, each tried three times."""
POLL_S = 0.02

_armed: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}


def arm(run: str, fault: str, ttl_s: float, undo: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Start a guard; once this returns its `name`, the steps will be taken whatever becomes of us.

    They are taken after `ttl_s`, when we are gone, at SIGTERM, or when told to. Raises Trouble `not-armed`: then
    nothing may be broken.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{run}-{fault}-{secrets.token_hex(3)}")
    words, inherited = guard.command()
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # ours may be a connection that closes only once nobody holds it
            start_new_session=True,  # a Ctrl-C, a closed terminal or a killed group does not reach it
            pass_fds=inherited,
            bufsize=0,
            env=marks.marked(run),
            cwd="/",
        )
    except OSError as error:
        raise Trouble("not-armed", f"the guard process could not be started: {error.strerror}") from None
    record = None
    try:
        record = _write_record(name, process.pid, {"run": run, "fault": fault, "ttl_s": ttl_s, "undo": list(undo)})
        _brief(process, json.dumps({"ttl_s": ttl_s, "undo": list(undo), "record": str(record)}))
    except Trouble as trouble:
        process.kill()
        _let_go(process)
        if record is not None:
            state.remove(record)
        raise Trouble("not-armed", f"the guard could not be armed: {trouble.text}") from None
    _armed[name] = process, record
    return {"name": name, "pid": process.pid}


def disarm(name: str) -> dict[str, Any]:
    """It is no longer needed. `stood`: whether it was there up to now; if not, it took its steps by itself."""
    return {"stood": _dismiss(name, guard.DISARM) == []}


def release(name: str) -> dict[str, Any]:
    """Have it take its steps now: `undone` are those, each with what was measured; None where nobody knows.

    One that has ended took them before; those of one that was killed are taken here.
    """
    return {"undone": _dismiss(name, guard.RELEASE)}


def _dismiss(name: str, word: str) -> list[dict[str, Any]] | None:
    """The steps that a guard took; None where it belonged to somebody else, whose connection is gone."""
    if name not in _armed:
        _dismiss_orphan(name)
        return None
    process, record = _armed.pop(name)
    with suppress(Trouble):  # its time was over, and it has ended
        _tell(process, word)
    said = _hear(process, UNDONE_S)
    if process.poll() is None and said is None:
        raise Trouble("not-undone", f"the guard did not end; {record} says what it was to undo")
    _let_go(process)
    return json.loads(said) if said else _in_its_place(record, word)


def _in_its_place(record: Path, word: str) -> list[dict[str, Any]]:
    """Take the steps of a guard that was killed: one that did its work has removed its record."""
    left = state.read(record)
    if left is None and record.exists():
        raise Trouble("not-undone", f"the guard was killed, and its record {record} is damaged")
    if left is None:
        return []
    steps = undo(left["undo"]) if word == guard.RELEASE else []
    if all(step["ok"] for step in steps):
        state.remove(record)
    return steps


def _dismiss_orphan(name: str) -> None:
    for folder in state.private_folders():
        found = state.read(folder / f"{name}.json")
        if found is not None and not end(str(found.get("guard", ""))):
            raise Trouble("not-undone", f"the guard did not end; {folder / name}.json says what it was to undo")


def end(who: str) -> bool:
    """Have a guard that is not our child take its steps, and wait for it; whether it has ended."""
    if marks.lives(who):
        with suppress(OSError):
            os.kill(int(who.partition(":")[0]), signal.SIGTERM)
    until = time.monotonic() + UNDONE_S
    while marks.lives(who) and time.monotonic() < until:
        time.sleep(POLL_S)
    return not marks.lives(who)


def _write_record(name: str, pid: int, what: dict[str, Any]) -> Path:
    value = {
        **what,
        "guard": marks.named(pid),
        "owner": marks.me(),
        "boot": proc.boot_id(),
        "since": round(time.time()),
    }
    for last in (False, True):
        path = state.private_folder() / f"{name}.json"
        try:
            state.write(path, value)
        except Trouble:
            if last:
                raise  # else somebody removed the empty folder just then
        else:
            break
    return path


def _brief(process: subprocess.Popen[bytes], orders: str) -> None:
    _tell(process, orders)
    if _hear(process, READY_S, upto=b"\n") != f"{guard.ARMED}\n".encode():
        raise Trouble("not-armed", f"it was not ready within {READY_S:g} s")


def _tell(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None  # noqa: S101 - for the type checker
    try:
        process.stdin.write(f"{line}\n".encode())
    except OSError:
        raise Trouble("not-armed", "the guard process has ended") from None


def _hear(process: subprocess.Popen[bytes], at_most_s: float, upto: bytes = b"") -> bytes | None:
    """What it says up to its end, or up to `upto`; None when that did not come in time."""
    assert process.stdout is not None  # noqa: S101 - for the type checker
    said, until = b"", time.monotonic() + at_most_s
    while not upto or not said.endswith(upto):
        ready, _, _ = select.select([process.stdout], [], [], max(until - time.monotonic(), 0.0))
        if not ready:
            return None
        more = process.stdout.read(65536)
        if not more:
            break
        said += more
    return said


def _let_go(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()


OPS: dict[str, Callable[..., object]] = {"guard.arm": arm, "guard.disarm": disarm, "guard.release": release}
