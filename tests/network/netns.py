"""Two hosts of our own: network namespaces joined by a veth pair, and our operations carried out inside them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVE = """
import json, sys, threading
from chaos.outpost.ops import OPS
from chaos.outpost.trouble import Trouble
lock = threading.Lock()
def answer(asked):
    try:
        told = {"ok": OPS[asked["op"]](**asked["args"])}
    except Trouble as trouble:
        told = {"kind": trouble.kind, "err": trouble.text}
    except BaseException as error:
        told = {"kind": "defect", "err": repr(error)}
    with lock:
        print(json.dumps({"id": asked["id"], **told}), flush=True)
for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
"""
LEAVES_S = 10.0


def why_not() -> str:
    """Why there can be no such hosts here; the empty string when there can."""
    if os.geteuid():
        return "network namespaces take root"
    lacking = [tool for tool in ("ip", "nft", "tc") if shutil.which(tool) is None]
    if lacking:
        return f"there is no {lacking[0]}"
    made = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False)
    return "this kernel makes no network namespaces" if made.returncode else ""


class NetHost:
    """One of them."""

    def __init__(self, name: str, device: str, addresses: tuple[str, str]) -> None:
        self.name, self.device, self.addresses = name, device, addresses
        self._next = 0
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[threading.Event, dict[str, Any]]] = {}
        self._process: subprocess.Popen[str] | None = None
        self.environ: dict[str, str] = {}

    def tool(self, *argv: str) -> str:
        """What a command says there."""
        full = ["ip", "netns", "exec", self.name, *argv]
        return subprocess.run(full, capture_output=True, text=True, check=True).stdout

    def call(self, op: str, /, **args: Any) -> Any:
        """Carry out an operation there. Raises Trouble, AssertionError for a defect."""
        with self._lock:
            process = self._started()
            self._next += 1
            mine, told = self._next, {}
            done = threading.Event()
            self._waiting[mine] = done, told
            assert process.stdin
            process.stdin.write(json.dumps({"id": mine, "op": op, "args": args}) + "\n")
            process.stdin.flush()
        assert done.wait(60), f"{op} did not end"
        if "ok" in told:
            return told["ok"]
        assert told["kind"] != "defect", told["err"]
        raise Trouble(told["kind"], told["err"])

    def clear(self) -> None:
        """Take away every table and qdisc."""
        self.tool("nft", "flush", "ruleset")
        subprocess.run(
            ["ip", "netns", "exec", self.name, "tc", "qdisc", "del", "dev", self.device, "root"],
            capture_output=True,
            check=False,
        )

    def kill(self) -> None:
        """End what runs there, as nothing can prepare for."""
        process, self._process = self._started(), None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe
            pipe.close()

    def close(self) -> None:
        """End what runs there."""
        if self._process is not None:
            assert self._process.stdin
            self._process.stdin.close()
            try:
                self._process.wait(LEAVES_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            assert self._process.stdout
            self._process.stdout.close()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            clean = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, sys.executable, "-c", SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=clean | self.environ,
            )
            threading.Thread(target=self._hear, args=(self._process,), daemon=True).start()
        return self._process

    def _hear(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            told = json.loads(line)
            done, into = self._waiting.pop(told["id"])
            into.update(told)
            done.set()


@contextmanager
def two_hosts() -> Iterator[tuple[NetHost, NetHost]]:
    """Two hosts on one wire; everything of them is gone afterwards."""
    mine = f"net{os.getpid()}"
    near = NetHost(f"{mine}-a", f"{mine}a"[-15:], ("10.177.0.1", "fd77:177::1"))
    far = NetHost(f"{mine}-b", f"{mine}b"[-15:], ("10.177.0.2", "fd77:177::2"))
    try:
        for host in (near, far):
            _run("ip", "netns", "add", host.name)
        wire = ["link", "add", near.device, "netns", near.name, "type", "veth", "peer", "name", far.device]
        _run("ip", *wire, "netns", far.name)
        for host in (near, far):
            v4, v6 = host.addresses
            _run("ip", "-n", host.name, "addr", "add", f"{v4}/24", "dev", host.device)
            _run("ip", "-n", host.name, "addr", "add", f"{v6}/64", "dev", host.device, "nodad")
            for device in ("lo", host.device):
                _run("ip", "-n", host.name, "link", "set", device, "up")
        yield near, far
    finally:
        for host in (near, far):
            host.close()
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)


def _run(*argv: str) -> None:
    subprocess.run(argv, capture_output=True, check=True)
