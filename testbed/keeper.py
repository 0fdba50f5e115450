"""A host's service manager: starts sshd and the engine's node, and does what the bed or `pd-node` asks for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.model.errors import PdchaosError
from testbed import control, init, processes
from testbed.engines import engine_of
from testbed.errors import BedError
from testbed.folder import HostFolder
from testbed.look import Baseline
from testbed.mounts import PRIVATE
from testbed.node import Node
from testbed.plan import Plan
from testbed.sshd import HOST_PATH, Sshd

if TYPE_CHECKING:
    from testbed.control import Answer

_FILLER = "full"
_BLOCK = bytes(1 << 16)


class Keeper:
    """What is done on this host."""

    def __init__(self, plan: Plan, name: str, folder: HostFolder) -> None:
        host = plan.host(name)
        self.sshd = Sshd(folder, host.address)
        engine = engine_of(plan)
        self.node = Node(engine, host, folder)
        self.node.start()
        if host.role == "router":
            engine.warm()
        self.sshd.start()
        self._baseline = Baseline()

    @property
    def acts(self) -> control.Acts:
        """What can be asked for."""
        return {
            "look": self.look,
            "node": self.act_on_node,
            "sshd": self.act_on_sshd,
            "fill": self.fill,
            "empty": self.empty,
            "flood": self.flood,
        }

    def look(self) -> Answer:
        """What somebody left on this host."""
        running = processes.all_processes()
        own = processes.below([os.getpid()], running) | self.node.pids
        sessions = processes.below([self.sshd.pid], running) - {self.sshd.pid} if self.sshd.pid else set()
        return asdict(self._baseline.leftovers(own={1} | (own - sessions)))

    def act_on_node(self, act: str) -> Answer:
        """`start`, `stop`, `restart`, `status`; any of them says the pid after it, 0 for none."""
        acts = {"start": self.node.start, "stop": self.node.stop, "restart": self.node.restart}
        if act != "status":
            acts[act]()
        return {"pid": self.node.pid}

    def act_on_sshd(self, act: str, *, sessions: bool = True) -> Answer:
        """`stop` and `cont` as signals to all of it; `restart` with or without the present sessions."""
        if act == "restart":
            self.sshd.signal_all(signal.SIGCONT)
            self.sshd.end(sessions=sessions)
            self.sshd.start()
            return {"pid": self.sshd.pid}
        return {"processes": self.sshd.signal_all(signal.SIGSTOP if act == "stop" else signal.SIGCONT)}

    def fill(self) -> Answer:
        """Fill every disk of the host to the last byte."""
        for private in PRIVATE:
            with contextlib.suppress(OSError), (private / _FILLER).open("ab", buffering=0) as filler:
                while True:
                    filler.write(_BLOCK)
        return {}

    def empty(self) -> Answer:
        """The reverse of `fill`."""
        for private in PRIVATE:
            (private / _FILLER).unlink(missing_ok=True)
        return {}

    def flood(self, mb_per_s: float, seconds: float) -> Answer:
        """Have the node's log grow; returns at once."""
        command = [sys.executable, "-m", "testbed.flood", str(self.node.err), str(mb_per_s), str(seconds)]
        flooding = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        threading.Thread(target=flooding.wait, daemon=True).start()
        return {"pid": flooding.pid}


def main() -> int:
    """Start everything, say so, and serve until process 1 ends."""
    folder = HostFolder(Path(sys.argv[1]))
    order = json.loads(sys.stdin.read())
    plan, name = Plan.from_json(order["plan"]), order["host"]
    os.environ["PATH"] = HOST_PATH
    if name in plan.timezones:
        os.environ["TZ"] = plan.timezones[name]
    try:
        keeper = Keeper(plan, name, folder)
        control.serve(folder.control, keeper.acts)
    except (BedError, PdchaosError, OSError) as error:
        init.tell(error=f"{name}: {error}")
        return 1
    init.tell(ready=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
