"""A host's SSH server: OpenSSH as it comes, with a configuration of the host's own."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import processes
from testbed.errors import BedError
from testbed.folder import BIN
from testbed.needs import program
from testbed.plan import SSH_PORT

if TYPE_CHECKING:
    from testbed.folder import HostFolder

HOST_PATH = f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_READY_TIMEOUT_S = 30.0
_POLL_S = 0.02


def write_config(folder: HostFolder, here: HostFolder, address: str, timezone: str) -> None:
    """`folder` is the host's folder as seen now, `here` as the host will see it."""
    zone = f" TZ={timezone}" if timezone else ""
    (folder.etc / "sshd_config").write_text(
        f"Port {SSH_PORT}\nListenAddress {address}\nHostKey {here.host_key}\nPidFile /run/sshd.pid\n"
        f"AuthorizedKeysFile {here.etc / 'authorized_keys'}\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
        "UsePAM no\nUseDNS no\nPrintMotd no\nPrintLastLog no\nLogLevel VERBOSE\n"
        f"Subsystem sftp internal-sftp\nSetEnv PATH={HOST_PATH}{zone}\n"
    )


class Sshd:
    """The server of this host; its sessions are its children."""

    def __init__(self, folder: HostFolder, address: str) -> None:
        self._folder = folder
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that listens; 0 when there is none."""
        return self._process.pid if self._process and self._process.returncode is None else 0

    def start(self) -> None:
        """Return once it takes connections."""
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it puts its unprivileged half
        config, log = self._folder.etc / "sshd_config", self._folder.path / "sshd.log"
        process = subprocess.Popen(
            [program("sshd"), "-D", "-f", str(config), "-E", str(log)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=process.wait, daemon=True).start()
        self._process = process
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self._answers():
            if process.returncode is not None or time.monotonic() > deadline:
                raise BedError(f"sshd does not listen: {log.read_text() if log.exists() else 'it said nothing'}")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self._address, SSH_PORT), timeout=_READY_TIMEOUT_S) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def end(self, *, sessions: bool) -> None:
        """SIGKILL the process that listens, and with `sessions` every connection's, too."""
        for pid in self._pids() if sessions else filter(None, [self.pid]):
            processes.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_READY_TIMEOUT_S)

    def signal_all(self, number: signal.Signals) -> int:
        """Send a signal to the listener and the processes of every connection; how many there were."""
        pids = self._pids()
        for pid in pids:
            processes.kill(pid, number)
        return len(pids)

    def _pids(self) -> list[int]:
        """By name, and only such that stem from the listener or lost it: what a session started is not sshd's."""
        return [each.pid for each in processes.all_processes() if each.name.startswith("sshd")]
