"""Real processes for faults of nodes: a little server with a child and threads, found by a pid file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.model.target import Server, ServerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = """
import http.server, os, pathlib, signal, subprocess, sys, threading, time
port, pidfile, mode = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "pretend::scheduler_TP0"])
for rank in (10, 2) if mode == "ranks" else ():
    subprocess.Popen([f"pretend::scheduler_TP{rank}", "600"], executable="/bin/sleep")
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if mode == "sick" else 200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer.allow_reuse_address = True
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Health)
draft = pidfile.with_suffix(".tmp")
draft.write_text(f"{os.getpid()}\\n")
pathlib.Path(f"{pidfile}.port").write_text(str(server.server_port))
draft.replace(pidfile)
server.serve_forever()
"""


def state_of(pid: int) -> str:
    """What the kernel calls the process's state; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def until(condition, what: str, seconds: float = 60.0) -> None:
    """Wait for another process."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class Node:
    """One server of ours, and what replaces it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.script = folder / "server.py"
        self.script.write_text(SERVER)
        self.pidfile = folder / f"{name}.pid"
        self.started: list[subprocess.Popen[bytes]] = []
        self.port = 0

    def start(self, mode: str = "well") -> None:
        """Start it and wait until it listens."""
        self.pidfile.unlink(missing_ok=True)
        words = [sys.executable, str(self.script), str(self.port), str(self.pidfile), mode]
        self.started.append(subprocess.Popen(words, start_new_session=True))
        until(self.pidfile.exists, "the server starts")
        self.port = int(self.pidfile.with_name(f"{self.pidfile.name}.port").read_text())

    @property
    def pid(self) -> int:
        """Of the process that is there now."""
        return int(self.pidfile.read_text())

    @property
    def child(self) -> int:
        """Of its child."""
        return _children(self.pid)[0]

    def command(self, mode: str = "well") -> str:
        """A shell command that replaces the server."""
        python = f"{sys.executable} {self.script} {self.port} {self.pidfile} {mode}"
        return f"kill -9 $(cat {self.pidfile}); rm {self.pidfile}; sleep 0.1; {python} & sleep 0.1"

    def server(self, role: str = "decode", **more: object) -> Server:
        """As a target names it."""
        url = f"http://127.0.0.1:{self.port}"
        return Server(self.name, role, ServerSpec(url=url, pidfile=str(self.pidfile), **more))

    def end(self) -> None:
        """Nothing of it is left."""
        pids = [self.pid] if self.pidfile.exists() else []
        for pid in {*pids, *(process.pid for process in self.started)}:
            for victim in (pid, *_children(pid)):
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
        for process in self.started:
            process.wait()


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextmanager
def node(folder: Path, name: str = "decode-0", mode: str = "well") -> Iterator[Node]:
    """A node while inside."""
    one = Node(folder, name)
    try:
        one.start(mode)
        yield one
    finally:
        one.end()
