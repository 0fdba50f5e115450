"""Finds a server's process on this host. What fits two processes that have nothing to do with each other is refused."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Callable

from chaos.outpost import proc
from chaos.outpost.tables import listeners
from chaos.outpost.tools import which
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.outpost.proc import Stat

ASK_S = 8.0
"""How long systemd or docker may take for an answer."""
MOST_TOLD = 8


def find(**selectors: int | str | None) -> Stat:
    """The process that the first given selector leads to. Raises Trouble: not-located, ambiguous, denied, missing."""
    for name, by in SELECTORS.items():
        value = selectors.get(name)
        if value is not None:
            return by(value)
    raise Trouble("not-located", "nothing says how to find it")


def locate(**selectors: int | str | None) -> dict[str, int | float]:
    """Where it is, told apart from later processes with its pid by when it started."""
    found = find(**selectors)
    return {"pid": found.pid, "start_ticks": found.start_ticks, "start_time": found.start_time}


def _by_pid(pid: int, what: str = "the target's pid") -> Stat:
    try:
        found = proc.stat(pid)
    except PermissionError:
        raise Trouble("denied", f"{what}, {pid}, may not be looked at") from None
    if found is None:
        raise Trouble("not-located", f"{what}, {pid}, is no process on its host")
    if found.gone:
        raise Trouble("not-located", f"{what}, {pid}, is a zombie")
    return found


def _by_pidfile(path: str) -> Stat:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe there must not hold us
        try:
            pid = int(os.read(fd, 64))
        finally:
            os.close(fd)
    except ValueError:
        raise Trouble("not-located", f"{path} holds no pid") from None
    except OSError as error:
        raise Trouble("not-located", f"cannot read {path}: {error.strerror}") from None
    return _by_pid(pid, f"the pid in {path}")


def _by_unit(unit: str) -> Stat:
    """A unit's main process; where systemd names none, the head of what is in its control group."""
    unit = unit if "." in unit else f"{unit}.service"
    told = {}
    if which("systemctl"):
        said = _ask(["systemctl", "show", "--property=LoadState,ActiveState,MainPID", unit])
        told = dict(line.partition("=")[::2] for line in said.splitlines())
        if told.get("LoadState") == "not-found":
            raise Trouble("not-located", f"systemd knows no unit {unit}")
        if int(told.get("MainPID") or 0):
            return _by_pid(int(told["MainPID"]), f"the main process of {unit}")
    everyone = proc.everybody()
    inside = [one for one in everyone.values() if not one.gone and unit in _groups(one.pid)]
    if not inside:
        state = f" (it is {told['ActiveState']})" if told.get("ActiveState") else ""
        raise Trouble("not-located", f"no process belongs to the unit {unit}{state}")
    return _head(inside, f"the unit {unit}", everyone)


def _groups(pid: int) -> list[str]:
    """The names in the paths of a process's control groups."""
    lines = proc.read(f"/proc/{pid}/cgroup").decode(errors="replace").splitlines()
    return [name for line in lines for name in line.split(":", 2)[-1].split("/")]


def _by_container(name: str) -> Stat:
    if not which("docker"):
        raise Trouble("missing", f"the container {name} cannot be asked for: there is no docker command on this host")
    said = _ask(["docker", "inspect", "--format", "{{.State.Pid}}", "--type", "container", name]).strip()
    if not said.isdigit():
        raise Trouble("not-located", f"docker does not say which process the container {name} is: {said[:200]}")
    if not int(said):
        raise Trouble("not-located", f"the container {name} does not run")
    return _by_pid(int(said), f"the process of the container {name}")


def _by_cmdline(wanted: str) -> Stat:
    everyone = proc.everybody()
    wanted = wanted.strip()
    fitting = [one for one in everyone.values() if not one.gone and proc.title(one.pid) == wanted]
    if not fitting:
        raise Trouble("not-located", f"no process has exactly the command line {wanted!r}")
    return _head(fitting, f"the command line {wanted!r}", everyone)


def _by_port(port: int) -> Stat:
    """Who listens there; where children inherited the socket of the server that started them, that server."""
    try:
        listening = listeners(port)
    except OSError:
        raise Trouble("denied", f"cannot see who listens on port {port}") from None
    if not listening:
        raise Trouble("not-located", f"nobody on its host listens on port {port}")
    everyone = proc.everybody()
    holding: dict[int, set[str]] = {}
    for one in everyone.values():
        held: set[str] = set()
        with suppress(OSError):  # gone, or another user's
            held = listening & proc.sockets(one.pid)
        if held:
            holding[one.pid] = held
    if not holding:
        raise Trouble("denied", f"the listener on port {port} belongs to another user")
    return _head(
        [everyone[pid] for pid in holding],
        f"port {port}",
        everyone,
        kin=lambda child, parent: bool(holding[child] & holding[parent]),
    )


def _head(
    fitting: Iterable[Stat],
    what: str,
    everyone: dict[int, Stat],
    kin: Callable[[int, int], bool] = lambda _child, _parent: True,
) -> Stat:
    """The one that all others descend from (and are `kin` to); refused when there is none."""
    fitting = list(fitting)
    pids = {one.pid for one in fitting}
    heads = [one for one in fitting if not any(up in pids and kin(one.pid, up) for up in _ancestors(one, everyone))]
    if len(heads) == 1:
        return heads[0]
    told = [f"pid {one.pid} ({proc.full_name(one)})" for one in sorted(heads)]
    more = f" and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    raise Trouble("ambiguous", f"{what} fits {len(heads)} unrelated processes: {', '.join(told[:MOST_TOLD])}{more}")


def _ancestors(one: Stat, everyone: dict[int, Stat]) -> Iterable[int]:
    seen = {one.pid}
    while one.parent in everyone and one.parent not in seen:
        one = everyone[one.parent]
        seen.add(one.pid)
        yield one.pid


def _ask(command: list[str]) -> str:
    """What a tool of the host says; Trouble when it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise Trouble("not-located", f"{command[0]} did not answer within {ASK_S:g} s") from None
    except OSError as error:
        raise Trouble("missing", f"{command[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())[:300]
        raise Trouble("not-located", f"{' '.join(command[:2])} failed with {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


SELECTORS: dict[str, Callable[..., Stat]] = {
    "pid": _by_pid,
    "pidfile": _by_pidfile,
    "systemd": _by_unit,
    "docker": _by_container,
    "cmdline": _by_cmdline,
    "port": _by_port,
}
"""In the order in which they count where a target gives several."""

OPS: dict[str, Callable[..., object]] = {"locate": locate}
