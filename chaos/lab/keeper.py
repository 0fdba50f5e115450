"""Keeps a lab up in the background: `up` starts a keeper process, which owns the lab until SIGTERM or its time is over.

The keeper writes two files into the lab's folder once everything serves: `target.yaml`, ready for `--target`, and
`state.json`. Should the keeper be killed, its lab dies with it (see `provider`), and `status` says so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import yaml

from chaos.lab.provider import log_tail, parse_lab, start_lab
from chaos.model.errors import LabError, PdchaosError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chaos.lab.kinds import LabSpec
    from chaos.model.target import Target

DEFAULT_TTL_S = 3600.0
STATE_FILE, TARGET_FILE, LOG_FILE = "state.json", "target.yaml", "keeper.log"
_START_SLACK_S = 30.0
_STOP_TIMEOUT_S = 15.0
_POLL_S = 0.05
_START_TIME_SLACK_S = 1.0  # psutil's start times of one process may differ by a clock tick


class State(StrEnum):
    """What became of a kept lab."""

    UP = "up"
    DEGRADED = "degraded"  # the keeper lives, some node does not
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A kept lab as `status` sees it."""

    state: State
    lab: str = ""
    folder: str = ""
    target: str = ""  # path of the target file
    keeper_pid: int = 0
    pids: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    seconds_left: float = 0.0


@dataclass(frozen=True, slots=True)
class _Record:
    """Content of the state file. Start times tell a process from a later one with the same id."""

    lab: str
    keeper: tuple[int, float]
    nodes: tuple[tuple[int, float], ...]
    expires_at: float  # seconds since the epoch


def default_folder(lab: str = "sim") -> Path:
    """Where a kept lab lives unless a folder is given."""
    state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "pdchaos" / "labs" / lab


def up(
    lab: str,
    options: Mapping[str, str],
    folder: Path,
    progress: Callable[[str], None],
    *,
    ttl_s: float = DEFAULT_TTL_S,
) -> LabStatus:
    """Start a lab (`sim@BUILD`) that outlives this process; UsageError when the folder already has one that is up."""
    spec = parse_lab(lab, options)  # refuse here, where the user sees it
    if status(folder).state is not State.DOWN:
        raise UsageError(f"a lab is already up in {folder}", hint="take it down first, or give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (STATE_FILE, TARGET_FILE):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise LabError(f"folder {folder} cannot be used: {error.strerror}") from error
    order = {"lab": lab, "options": dict(options), "folder": str(folder.resolve()), "ttl_s": ttl_s}
    with (folder / LOG_FILE).open("wb") as out:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "chaos.lab.keeper", json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        progress(f"{spec.title}: keeper started, pid {keeper.pid}")
        _await_state(keeper, folder, spec.patience_s + _START_SLACK_S)
    except BaseException:
        keeper.kill()  # also on ctrl-C: a half-started lab is of no use, and dies with its keeper
        keeper.wait()
        raise
    keeper.returncode = 0  # it is meant to outlive us: no warning that it still runs
    return status(folder)


def _await_state(keeper: subprocess.Popen[bytes], folder: Path, timeout_s: float) -> None:
    log = folder / LOG_FILE
    deadline = time.monotonic() + timeout_s
    while not (folder / STATE_FILE).exists():
        if keeper.poll() is not None:
            raise LabError(log_tail(log), hint=f"whole log: {log}")
        if time.monotonic() > deadline:
            raise LabError(f"the lab did not come up within {timeout_s:g} s", hint=f"log: {log}")
        time.sleep(_POLL_S)


def status(folder: Path) -> LabStatus:
    """What became of the lab in a folder."""
    record = _read(folder)
    if record is None or _find(*record.keeper) is None:
        return LabStatus(State.DOWN, folder=str(folder))
    dead = tuple(pid for pid, started in record.nodes if _find(pid, started) is None)
    return LabStatus(
        state=State.DEGRADED if dead else State.UP,
        lab=record.lab,
        folder=str(folder),
        target=str(folder / TARGET_FILE),
        keeper_pid=record.keeper[0],
        pids=tuple(pid for pid, _ in record.nodes),
        dead=dead,
        seconds_left=max(0.0, record.expires_at - time.time()),
    )


def down(folder: Path) -> list[int]:
    """Stop the lab in a folder and wait until it is gone; the ids of processes that would not die."""
    record = _read(folder)
    if record is None:
        return []
    keeper = _find(*record.keeper)
    if keeper is not None:
        keeper.terminate()
        if psutil.wait_procs([keeper], _STOP_TIMEOUT_S)[1]:
            keeper.kill()
    nodes = [node for node in (_find(*each) for each in record.nodes) if node is not None]
    left = psutil.wait_procs(nodes, _STOP_TIMEOUT_S)[1]
    if not left:
        (folder / STATE_FILE).unlink(missing_ok=True)
    return [node.pid for node in left]


# ------------------------------------------------------------------------------------------------ the keeper


def keep(lab: str, options: Mapping[str, str], folder: Path, ttl_s: float) -> None:
    """Own a lab until SIGTERM, or until `ttl_s` seconds are over."""
    spec = parse_lab(lab, options)
    with start_lab(spec, folder, lambda line: print(line, flush=True)) as running:  # noqa: T201, goes to keeper.log
        # after the start: nodes inherit a signal mask
        awaited = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        _publish(folder, spec, running.target, running.pids, ttl_s)
        deadline = time.monotonic() + ttl_s
        while (left := deadline - time.monotonic()) > 0:
            caught = signal.sigtimedwait(awaited, left)
            if caught is not None and caught.si_signo != signal.SIGCHLD:
                break
            running.reap()
    (folder / STATE_FILE).unlink(missing_ok=True)


def _publish(folder: Path, spec: LabSpec, target: Target, pids: list[int], ttl_s: float) -> None:
    _replace(folder / TARGET_FILE, target_yaml(target))
    record = _Record(
        lab=f"{spec.kind}@{spec.build}",
        keeper=(os.getpid(), psutil.Process().create_time()),
        nodes=tuple((pid, psutil.Process(pid).create_time()) for pid in pids),
        expires_at=time.time() + ttl_s,
    )
    _replace(folder / STATE_FILE, json.dumps(asdict(record)))


def target_yaml(target: Target) -> str:
    """A target as a file, with units."""
    plain = target.model_dump(exclude_defaults=True, exclude_none=True)
    plain["environment"], plain["allow"] = target.environment, target.allow
    plain["timeouts"] = {name: f"{seconds:g}s" for name, seconds in target.timeouts.items()}
    if target.gauge_lag is not None:
        plain["gauge_lag"] = f"{target.gauge_lag:g}s"
    return yaml.safe_dump(plain, sort_keys=False)


def _replace(path: Path, text: str) -> None:
    """Write so that a reader sees the old file or the new one, never half of it."""
    draft = path.with_suffix(".tmp")
    draft.write_text(text)
    draft.replace(path)


def _read(folder: Path) -> _Record | None:
    try:
        raw = json.loads((folder / STATE_FILE).read_text())
        nodes = tuple((int(pid), float(started)) for pid, started in raw["nodes"])
        pid, started = raw["keeper"]
        return _Record(str(raw["lab"]), (int(pid), float(started)), nodes, float(raw["expires_at"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{folder / STATE_FILE} cannot be read: {error}", hint="remove it if no lab runs") from error


def _find(pid: int, started: float) -> psutil.Process | None:
    """The process itself, not a later one with its id; a zombie is gone."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) < _START_TIME_SLACK_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def _main() -> int:
    order = json.loads(sys.argv[1])
    try:
        keep(order["lab"], order["options"], Path(order["folder"]), float(order["ttl_s"]))
    except PdchaosError as error:
        print(error.message, file=sys.stderr)  # noqa: T201, goes to keeper.log
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
