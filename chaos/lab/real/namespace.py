"""A network namespace of a lab's own, for engines that bind wider than loopback.

How to use it::

    with enclose() as enclosure:  # LabError, with what to do about it, where it is not possible
        process = subprocess.Popen(enclosure.command([python, "-m", "engine", "--host", "0.0.0.0"]), ...)
        url = f"http://{enclosure.address}:30000"  # as seen from this process and from inside alike
        ...

`command` prefixes what is to run inside; the process keeps the id that `Popen` gives. Inside there are a loopback
device and one end of a virtual cable, whose other end is here. Nothing else leads in or out: there is no default
route, so no packet of an outsider is ever answered, whatever this machine forwards. Ports are the namespace's own, so
fixed port numbers cannot clash; a process is therefore *not* found by its port from outside: name its pid or pid file.

A supervisor process (this module, run as a program) makes the namespace and owns it. It ends everything inside and
removes every trace when it is told to, or when its standard input ends because the lab's owner died, SIGKILL included.
Should the supervisor be killed, too, the next `enclose` finds the leftovers by their name and removes them. A
supervisor that lives holds an abstract socket of the namespace's name, which the kernel gives up with the process.

Where this process is itself in a namespace that has nothing but loopback, nothing needs to be made: that one is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from chaos.model.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

PREFIX = "pdchaos-"
_NETS = "10.213"  # of the private 10/8; each namespace takes a /30 of it
_TRIES = 20  # another /30 when one is taken already
_STOP_TIMEOUT_S = 15.0
_END_TIMEOUT_S = 5.0  # until a killed process is gone
_POLL_S = 0.02
_LOOPBACK = "127.0.0.1"
_NAMES = Path("/run/netns")
_DONE = "done"  # what an owner says that takes its leave; one that was killed says nothing
_LATECOMER_S = 1.0
"""How long a process may not be seen on its way in yet, when its owner was killed while starting it."""
_BY_HAND = "or give the whole run a private namespace: unshare -rn sh -c 'ip link set lo up; exec pdchaos …'"


@dataclass(slots=True)
class Enclosure:
    """Where a lab's processes run. `address` is theirs; `name` is empty where the present namespace serves."""

    name: str
    address: str
    _supervisor: subprocess.Popen[str] | None = field(default=None, repr=False)

    def command(self, arguments: Sequence[str]) -> list[str]:
        """What runs `arguments` inside, under the process id that it is started with."""
        return [_ip(), "netns", "exec", self.name, *arguments] if self.name else list(arguments)

    def close(self) -> list[int]:
        """End everything inside and remove the namespace; the ids of processes that would not die."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return []
        try:
            told, _ = supervisor.communicate(_DONE, timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            told, _ = supervisor.communicate()
        lines = told.splitlines()
        return [int(pid) for pid in json.loads(lines[-1]).get("left", [])] if lines else _remove(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def enclose() -> Enclosure:
    """Make a namespace of our own, after removing what a crash may have left; LabError where it cannot be done."""
    if _only_loopback():
        return Enclosure("", _LOOPBACK)
    if os.geteuid() != 0:
        raise LabError("this lab binds wider than loopback, and only root can enclose it", hint=f"use root, {_BY_HAND}")
    sweep()
    name = PREFIX + secrets.token_hex(4)
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "chaos.lab.real.namespace", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # ctrl-C is for the owner
    )
    enclosure = Enclosure(name, _LOOPBACK, supervisor)
    try:
        line = supervisor.stdout.readline() if supervisor.stdout else ""
    except BaseException:
        enclosure.close()
        raise
    told = json.loads(line) if line else {"error": "its supervisor died"}
    if "error" in told:
        enclosure.close()
        hint = f"the machine must allow `ip netns add` (CAP_SYS_ADMIN, CAP_NET_ADMIN), {_BY_HAND}"
        raise LabError(f"this lab binds wider than loopback and cannot be enclosed: {told['error']}", hint=hint)
    enclosure.address = told["address"]
    return enclosure


def sweep() -> list[str]:
    """Remove the namespaces whose supervisor is dead; their names."""
    swept = []
    for name in _names():
        held = _hold(name)
        if held is None:
            continue  # its supervisor lives
        with held:
            _remove(name)
        swept.append(name)
    return swept


def pids_inside(name: str) -> list[int]:
    """The processes that are in a namespace, or on their way in."""
    return _pids_in(name, _inode(name))


def _inode(name: str) -> int | None:
    try:
        return (_NAMES / name).stat().st_ino
    except OSError:
        return None


def _pids_in(name: str, inode: int | None) -> list[int]:
    way_in = f"netns\0exec\0{name}\0".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            inside = (process / "ns" / "net").stat().st_ino == inode
            if inside or way_in in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def _only_loopback() -> bool:
    return {name for _, name in socket.if_nameindex()} == {"lo"} and _loopback_works()


def _loopback_works() -> bool:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        probe.listen()
        try:
            with socket.create_connection(probe.getsockname(), timeout=1.0):
                return True
        except OSError:
            return False  # the device is down


def _names() -> list[str]:
    return sorted(path.name for path in _NAMES.glob(f"{PREFIX}*")) if _NAMES.is_dir() else []


def _hold(name: str) -> socket.socket | None:
    """The socket that says whose the namespace is; None when a living supervisor has it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(f"\0{name}")
    except OSError:
        held.close()
        return None
    return held


def _ip() -> str:
    found = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
    if found is None:
        raise LabError("this lab needs the program ip for a network namespace", hint="apt-get install iproute2")
    return found


# ------------------------------------------------------------------------------------------------ the supervisor


def _run(*arguments: str) -> None:
    told = subprocess.run([_ip(), *arguments], capture_output=True, text=True, check=False)
    if told.returncode:
        raise LabError(f"ip {' '.join(arguments)}: {told.stderr.strip() or f'exit code {told.returncode}'}")


def _make(name: str) -> str:
    """Make the namespace and the cable; the address inside."""
    _run("netns", "add", name)
    _run("-n", name, "link", "set", "lo", "up")
    here = _cable(name)
    _run("link", "add", here, "type", "veth", "peer", "name", "cable", "netns", name)
    ours, theirs = _free_addresses()
    _run("addr", "add", f"{ours}/30", "dev", here)
    _run("link", "set", here, "up")
    _run("-n", name, "addr", "add", f"{theirs}/30", "dev", "cable")
    _run("-n", name, "link", "set", "cable", "up")
    return theirs


def _cable(name: str) -> str:
    return f"pdch{name.removeprefix(PREFIX)}"  # a device's name has at most 15 characters


def _free_addresses() -> tuple[str, str]:
    """The two addresses of a /30 that no route leads to yet."""
    rng = random.SystemRandom()
    for _ in range(_TRIES):
        net, host = f"{_NETS}.{rng.randrange(256)}", rng.randrange(64) * 4
        told = subprocess.run(
            [_ip(), "-4", "route", "show", "table", "all", "root", f"{net}.{host}/30"],
            capture_output=True,
            text=True,
            check=False,
        )
        if not told.stdout.strip():
            return f"{net}.{host + 1}", f"{net}.{host + 2}"
    raise LabError(f"no free network was found in {_NETS}.0.0/16")


def _remove(name: str, *, latecomers: bool = False) -> list[int]:
    """End what is inside and remove cable and namespace; the ids of processes that would not die."""
    with _kept(name):  # else the kernel gives its number to the next one, and we would kill what is in there
        inode = _inode(name)
        left = _end_all(name, inode)
        # Either may be missing after a half-made start, and the cable goes with the namespace if that is the last user.
        subprocess.run([_ip(), "link", "del", _cable(name)], capture_output=True, check=False)
        subprocess.run([_ip(), "netns", "del", name], capture_output=True, check=False)
        until = time.monotonic() + _LATECOMER_S
        while latecomers and time.monotonic() < until:
            time.sleep(_POLL_S)
            left = _end_all(name, inode)
    return left


@contextlib.contextmanager
def _kept(name: str) -> Iterator[None]:
    """Keep a namespace in the kernel's books, as far as there is one, also once its name is gone."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            held.enter_context((_NAMES / name).open("rb"))
        yield


def _end_all(name: str, inode: int | None) -> list[int]:
    deadline = time.monotonic() + _END_TIMEOUT_S
    while (inside := _pids_in(name, inode)) and time.monotonic() < deadline:
        for pid in inside:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    return inside


def _supervise(name: str) -> int:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # it ends when its owner lets go, never before
    held = _hold(name)
    if held is None:
        return 1
    with held:
        try:
            print(json.dumps({"address": _make(name)}), flush=True)  # noqa: T201, the owner reads it
        except LabError as error:
            _remove(name)
            print(json.dumps({"error": error.message}), flush=True)  # noqa: T201, the owner reads it
            return 1
        said = sys.stdin.read()
        left = _remove(name, latecomers=said != _DONE)
    with contextlib.suppress(BrokenPipeError):  # the owner may have died, which is why we clean up
        print(json.dumps({"left": left}), flush=True)  # noqa: T201, the owner reads it
    return 0


if __name__ == "__main__":
    sys.exit(_supervise(sys.argv[1]))
