"""Where a bed keeps what: one folder, with one folder per host in it that the host sees as `/run/pd`."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path("/run/pd")  # a host's own folder as the host sees it
LOGS = Path("/var/log/pd")  # and its `log` folder
BIN = HERE / "bin"
SHARED = HERE / "shared"  # one folder that all hosts share, as by NFS
REPOSITORY = Path(__file__).resolve().parent.parent


def default_folder() -> Path:
    """The folder of `up` and `down` unless they are told another."""
    return Path(tempfile.gettempdir()) / f"pdchaos-bed-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class HostFolder:
    """What belongs to one host; `path` is where the process that asks sees it."""

    path: Path

    @property
    def etc(self) -> Path:
        """Configuration of sshd, its key, passwd and the like."""
        return self.path / "etc"

    @property
    def logs(self) -> Path:
        """What the host calls /var/log/pd."""
        return self.path / "log"

    @property
    def journal(self) -> Path:
        """The log of a node that is read by `pd-logs` only."""
        return self.path / "journal"

    @property
    def scratch(self) -> Path:
        """An engine's home, sockets and caches."""
        return self.path / "scratch"

    @property
    def control(self) -> Path:
        """The keeper's socket."""
        return self.path / "control"

    @property
    def host_key(self) -> Path:
        """The private key of the host's sshd."""
        return self.etc / "ssh_host_ed25519_key"

    def pidfile(self, node: str) -> Path:
        """Of the host's node."""
        return self.path / f"{node}.pid"


@dataclass(frozen=True, slots=True)
class Folder:
    """A bed's folder."""

    path: Path

    @property
    def plan(self) -> Path:
        """What was asked for."""
        return self.path / "plan.json"

    @property
    def state(self) -> Path:
        """The processes of a bed that is up; absent when it is not."""
        return self.path / "state.json"

    @property
    def barrier(self) -> Path:
        """What the laptop cannot reach at present."""
        return self.path / "barrier.json"

    @property
    def lock(self) -> Path:
        """Held by the supervisor for as long as it lives."""
        return self.path / "lock"

    @property
    def log(self) -> Path:
        """What supervisor, inits and keepers had to complain about."""
        return self.path / "bed.log"

    @property
    def identity(self) -> Path:
        """The private key that every host lets in."""
        return self.path / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """Every host's public key."""
        return self.path / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """The hosts by name, for `ssh -F`."""
        return self.path / "ssh_config"

    @property
    def shared(self) -> Path:
        """What all hosts share."""
        return self.path / "shared"

    def host(self, name: str) -> HostFolder:
        """What belongs to one host."""
        return HostFolder(self.path / "hosts" / name)

    def target(self, via: str) -> Path:
        """A target file."""
        return self.path / f"target-{via}.yaml"
