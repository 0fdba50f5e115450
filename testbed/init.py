"""Process 1 of a host: makes it a machine of its own, starts the keeper, buries the dead.

Standard input is the lifeline. Its first line is the order, sent once the cable is there; at its end, whatever brought
it about, this process ends, and the kernel ends every process of the host with it. Standard output says `{"pid": …}`
(as the supervisor sees us), later `{"ready": true}` (by the keeper) or `{"error": …}`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from testbed import mounts, network
from testbed.errors import BedError
from testbed.folder import HERE, Folder
from testbed.plan import LAPTOP, Plan


def tell(**what: object) -> None:
    """One line for the supervisor."""
    os.write(1, json.dumps(what).encode() + b"\n")


def main() -> int:
    """Be a host until the lifeline ends."""
    folder, name = Folder(Path(sys.argv[1])), sys.argv[2]
    tell(pid=int(Path("/proc/self").readlink().name))  # /proc is still the supervisor's
    if not sys.stdin.buffer.readline():
        return 1
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    plan = Plan.from_json(folder.plan.read_text())
    host = plan.host(name)
    try:
        socket.sethostname(name)
        network.configure(host.address)
        if host.role == LAPTOP:
            mounts.make_laptop()
            tell(ready=True)
            threading.Event().wait()
        mounts.make_private(folder.host(name), disk_mb=plan.disk_mb, shared=folder.shared, keep=plan.keep)
        os.chdir("/")
    except (OSError, BedError) as error:
        tell(error=f"{name}: {error}")
        return 1
    order = json.dumps({"plan": plan.to_json(), "host": name})
    # The keeper inherits stdout, on which it says that all of the host serves.
    keeper = subprocess.Popen([sys.executable, "-m", "testbed.keeper", str(HERE)], stdin=subprocess.PIPE)
    if keeper.stdin is not None:
        keeper.stdin.write(order.encode())
        keeper.stdin.close()
    while True:
        pid, status = os.wait()
        if pid == keeper.pid:
            tell(error=f"{name}: its keeper ended with status {status}")
            return 1


def _end_with_supervisor() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
