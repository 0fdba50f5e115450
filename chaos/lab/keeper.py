"""Keeps a lab up in the background: `up` starts a keeper process, which owns the lab until SIGTERM or its time is over.

The keeper writes two files into the lab's folder once everything serves: `target.yaml`, ready for `--target`, and
`state.json`. Should the keeper be killed, its lab dies with it (see `provider`), and `status` says so. The target file
has a command for every node that restarts it: `restart` leaves a request in the folder and wakes the keeper, the only
one who can.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
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

    from chaos.lab.kinds import LabSpec, RunningLab
    from chaos.model.target import ServerSpec, Target

DEFAULT_TTL_S = 3600.0
STATE_FILE, TARGET_FILE, LOG_FILE = "state.json", "target.yaml", "keeper.log"
_REQUEST, _ANSWER = "restart-{}.request", "restart-{}.answer"
_WAKE = signal.SIGUSR1
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


def restart(folder: Path, node: str, variant: str | None = None) -> None:
    """Have the keeper of the lab in a folder restart a node, also as a variant; LabError when it cannot be done."""
    record = _read(folder)
    keeper = _find(*record.keeper) if record else None
    if record is None or keeper is None:
        raise UsageError(f"no lab is up in {folder}", hint="see `pdchaos lab status`")
    name = secrets.token_hex(8)
    answer = folder / _ANSWER.format(name)
    _replace(folder / _REQUEST.format(name), json.dumps({"node": node, "variant": variant}))
    keeper.send_signal(_WAKE)
    while not answer.exists():
        if _find(*record.keeper) is None:
            hint = f"log: {folder / LOG_FILE}"
            raise LabError(f"the lab in {folder} went down while {node} was restarted", hint=hint)
        time.sleep(_POLL_S)
    error = answer.read_text()
    answer.unlink()
    if error:
        raise LabError(error)


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
        signal.signal(_WAKE, lambda *_: None)  # while a node is restarted the next request must not end us
        awaited = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, _WAKE}
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)  # after the start: nodes inherit a signal mask
        _replace(folder / TARGET_FILE, target_yaml(_restartable(running.target, folder, spec.variants)))
        deadline, expires_at = time.monotonic() + ttl_s, time.time() + ttl_s
        _publish(folder, spec, running.pids, expires_at)
        while (left := deadline - time.monotonic()) > 0:
            caught = signal.sigtimedwait(awaited, left)
            if caught is not None and caught.si_signo not in (signal.SIGCHLD, _WAKE):
                break
            running.reap()
            if _restart_requested(folder, running, awaited):
                _publish(folder, spec, running.pids, expires_at)
    (folder / STATE_FILE).unlink(missing_ok=True)


def _restart_requested(folder: Path, running: RunningLab, awaited: set[signal.Signals]) -> bool:
    """Do what requests in the folder ask for; whether there were any.

    Looked for while signals are blocked: whoever asks after the last look has a signal pending.
    """
    any_there = False
    while requests := sorted(folder.glob(_REQUEST.format("*"))):
        any_there = True
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)  # else the new process would inherit that
        for request in requests:
            asked, error = json.loads(request.read_text()), ""
            request.unlink()
            try:
                running.restart(asked["node"], asked["variant"])
            except PdchaosError as failed:
                error = failed.message
            _replace(folder / _ANSWER.format(request.stem.removeprefix("restart-")), error)
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    return any_there


def _restartable(target: Target, folder: Path, variants: tuple[str, ...]) -> Target:
    """The target with a command for every node that restarts it."""

    def command(node: str, *more: str) -> str:
        return shlex.join([sys.executable, "-m", "chaos", "lab", "restart", str(folder), node, *more])

    def able(node: str, spec: ServerSpec) -> ServerSpec:
        as_variants = {variant: command(node, "--as", variant) for variant in variants if node not in routers}
        return spec.model_copy(update={"restart": command(node), "restart_as": as_variants})

    routers = {server.id for server in target.servers if server.role == "router"}
    router, *others = [able(server.id, server.spec) for server in target.servers]
    prefills = len(target.prefill)
    return target.model_copy(update={"router": router, "prefill": others[:prefills], "decode": others[prefills:]})


def _publish(folder: Path, spec: LabSpec, pids: list[int], expires_at: float) -> None:
    record = _Record(
        lab=f"{spec.kind}@{spec.build}",
        keeper=(os.getpid(), psutil.Process().create_time()),
        nodes=tuple((pid, psutil.Process(pid).create_time()) for pid in pids),
        expires_at=expires_at,
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
    draft = path.with_suffix(f"{path.suffix}.tmp")
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
