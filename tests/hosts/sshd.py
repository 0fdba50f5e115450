"""A real sshd on a loopback port of its own, with its own keys, for tests of everything that goes over SSH."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
import pytest

from chaos.engine.hosts.connect import Ways
from chaos.engine.hosts.place import resolve
from chaos.engine.hosts.remote import Remote
from chaos.model.target import Ssh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BINARY = "/usr/sbin/sshd"
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")

needs_sshd = pytest.mark.skipif(
    not Path(BINARY).exists() or os.geteuid() != 0, reason=f"takes {BINARY} (openssh-server), and root to run it"
)


def keygen(file: Path, *, kind: str = "ed25519", passphrase: str = "") -> Path:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(file)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return file


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Sshd:
    """One server; `env` and `rc` are what its sessions see."""

    def __init__(self, folder: Path, **options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.identity = keygen(folder / "id")
        self.host_key = keygen(folder / "host")
        self.authorized = folder / "authorized"
        self.authorized.write_text((folder / "id.pub").read_text())
        self.known_hosts = folder / "known_hosts"
        self.trust()
        self.options = {
            "Port": str(self.port),
            "ListenAddress": "127.0.0.1",
            "HostKey": str(self.host_key),
            "AuthorizedKeysFile": str(self.authorized),
            "PidFile": str(folder / "pid"),
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "MaxStartups": "100",
            "SetEnv": f"HOME={folder}",  # whatever start-up files this machine's user has are not ours to run
            **options,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def trust(self) -> None:
        """The user knows its host key."""
        public = " ".join((self.folder / "host.pub").read_text().split()[:2])
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}\n")

    def new_host_key(self) -> None:
        for file in self.folder.glob("host*"):
            file.unlink()
        keygen(self.host_key)

    def start(self) -> Self:
        config = self.folder / "config"
        config.write_text("".join(f"{key} {value}\n" for key, value in self.options.items()))
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [*DIES_WITH_US, BINARY, "-D", "-e", "-f", str(config)], stderr=log, start_new_session=True
        )
        log.close()
        for _ in range(1000):
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            if self._process.poll() is not None:
                raise AssertionError((self.folder / "log").read_text())
            time.sleep(0.01)
        raise AssertionError("sshd does not listen")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def processes(self) -> list[psutil.Process]:
        """The listener first, then what serves connections, and what runs in them."""
        assert self._process is not None
        listener = psutil.Process(self._process.pid)
        return [listener, *listener.children(recursive=True)]

    def end_listener(self) -> None:
        """As a restart does: open connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(10)

    def signal(self, number: int) -> None:
        """To the listener and whatever serves connections; not to the processes in them."""
        for process in self.processes:
            if process.name().startswith("sshd"):
                process.send_signal(number)

    def kill(self) -> None:
        """All of it at once."""
        if self._process is None:
            return
        try:
            processes = self.processes
        except psutil.NoSuchProcess:
            processes = []
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(10)
        psutil.wait_procs(processes, timeout=10)
        self._process = None

    def ssh(self, **more: object) -> Ssh:
        """What a target file would say to get in."""
        said = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "root",
            "identity": str(self.identity),
            "known_hosts": str(self.known_hosts),
            "ssh_config": False,
            "python": sys.executable,
        }
        return Ssh.model_validate({**said, **more})


def before_all(command: str) -> dict[str, str]:
    """The option by which every session begins with this, as it does with the start-up files of a shell."""
    return {"ForceCommand": f'{command}; eval "$SSH_ORIGINAL_COMMAND"'}


@contextlib.contextmanager
def connected(ssh: Ssh) -> Iterator[Remote]:
    ways = Ways()
    remote = Remote(resolve(ssh), ways, run="a1b2c3d4")
    try:
        remote.open()
        yield remote
    finally:
        remote.close()
        ways.close()


async def soon(holds: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not holds() and time.monotonic() < deadline:  # noqa: ASYNC110 - of another process or thread
        await asyncio.sleep(0.02)
    return holds()
