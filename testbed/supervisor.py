"""Owns a bed: `python -m testbed.supervisor FOLDER`, started in a network namespace of its own: the switch.

Standard input is the lifeline, unless `--alone` is given: at its end the bed ends. So it does at SIGTERM and at the
plan's time limit. Standard output says `{"ready": true}` or `{"error": …}`. SIGKILL of this process ends the bed, too:
each host's process 1 reads from a pipe whose other end is here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import network
from testbed.engines import engine_of
from testbed.errors import BedError
from testbed.folder import Folder
from testbed.needs import program
from testbed.plan import LAPTOP, Plan

if TYPE_CHECKING:
    from testbed.plan import HostPlan

_END_TIMEOUT_S = 20.0
_LAPTOP_HAS = ("--net", "--uts", "--mount")
_HOST_HAS = (*_LAPTOP_HAS, "--pid", "--ipc", "--fork", "--kill-child")


class Host:
    """A host and the pipes to its process 1."""

    def __init__(self, folder: Folder, plan: HostPlan) -> None:
        self.plan = plan
        self.pid = 0  # of its process 1, as seen here
        self._said = b""
        own = _LAPTOP_HAS if plan.role == LAPTOP else _HOST_HAS
        command = [program("unshare"), *own, sys.executable, "-m", "testbed.init", str(folder.path), plan.name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def hear(self, deadline: float) -> dict[str, Any]:
        """The next thing it says; BedError when that is an error, an end or nothing."""
        assert self.process.stdout is not None  # noqa: S101, for mypy: it was asked for
        while b"\n" not in self._said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise BedError(f"{self.plan.name} did not come up in time")
            got = os.read(self.process.stdout.fileno(), 4096)
            if not got:
                raise BedError(f"{self.plan.name} ended while it came up")
            self._said += got
        line, self._said = self._said.split(b"\n", 1)
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise BedError(told["error"])
        return told

    def go(self) -> None:
        """Its cable is there."""
        if self.process.stdin is not None:
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Let go of the lifeline."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


def bring_up(folder: Folder, plan: Plan, hosts: list[Host]) -> None:
    """All hosts at once; they are added to `hosts` as they begin."""
    network.make_switch()
    hosts += [Host(folder, host) for host in plan.hosts]
    deadline = time.monotonic() + plan.ready_timeout_s
    for number, host in enumerate(hosts):
        host.pid = int(host.hear(deadline)["pid"])
        network.plug_in(f"port{number}", host.pid)
    # A router that starts before its workers counts them as ill until it looks again, seconds later.
    for routers in (False, True):
        begun = [host for host in hosts if (host.plan.role == "router") is routers]
        for host in begun:
            host.go()
        for host in begun:
            host.hear(deadline)


def _end(hosts: list[Host]) -> None:
    for host in hosts:
        host.end()
    deadline = time.monotonic() + _END_TIMEOUT_S
    for host in hosts:
        try:
            host.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            host.process.kill()
            host.process.wait()


def _watch(plan: Plan, told_to_end: int, *, alone: bool) -> None:
    """Until the lifeline ends, a signal comes, or the time is up."""
    deadline = time.monotonic() + plan.time_limit_s
    watched = [told_to_end] if alone else [told_to_end, 0]
    while (left := deadline - time.monotonic()) > 0:
        for fd in select.select(watched, [], [], left)[0]:
            if fd == told_to_end or not os.read(fd, 4096):
                return


def main() -> int:
    """Bring the bed up, watch over it, end it."""
    folder, alone = Folder(Path(sys.argv[1])), "--alone" in sys.argv
    told_to_end, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    plan = Plan.from_json(folder.plan.read_text())
    hosts: list[Host] = []
    with folder.lock.open("ab") as lock, engine_of(plan).hold():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            bring_up(folder, plan, hosts)
            state = {"supervisor": os.getpid(), "hosts": {host.plan.name: host.pid for host in hosts}}
            folder.state.write_text(json.dumps(state))
        except (BedError, OSError, subprocess.SubprocessError) as error:
            _end(hosts)
            _say(error=str(error))
            return 1
        _say(ready=True)
        _watch(plan, told_to_end, alone=alone)
        folder.state.unlink(missing_ok=True)
        _end(hosts)
    return 0


def _say(**what: object) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
