"""SSH keys: the client's, each host's, and the files by which a client knows both."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from testbed.needs import program
from testbed.plan import SSH_PORT

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.folder import Folder
    from testbed.plan import Plan

USER = "root"
_TIMEOUT_S = 30.0


def make_key(path: Path, comment: str) -> None:
    """An ed25519 key pair at `path` and `path.pub`, replacing what is there."""
    path.unlink(missing_ok=True)
    public(path).unlink(missing_ok=True)
    command = [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)


def public(path: Path) -> Path:
    """The public half of a key."""
    return path.with_name(path.name + ".pub")


def make_all(folder: Folder, plan: Plan) -> None:
    """Every key of a bed, `known_hosts` and `ssh_config`."""
    make_key(folder.identity, "pdchaos-bed")
    for host in plan.servers:
        own = folder.host(host.name)
        make_key(own.host_key, host.name)
        (own.etc / "authorized_keys").write_bytes(public(folder.identity).read_bytes())
    write_known_hosts(folder, plan)
    folder.ssh_config.write_text(_ssh_config(folder, plan))


def write_known_hosts(folder: Folder, plan: Plan) -> None:
    """The hosts' keys as they are now."""
    lines = []
    for host in plan.servers:
        kind, key, *_ = public(folder.host(host.name).host_key).read_text().split()
        lines.append(f"{host.address} {kind} {key}\n")
    folder.known_hosts.write_text("".join(lines))


def _ssh_config(folder: Folder, plan: Plan) -> str:
    hosts = "".join(f"Host {host.name}\n    HostName {host.address}\n" for host in plan.servers)
    return (
        f"{hosts}Host *\n    User {USER}\n    Port {SSH_PORT}\n    IdentityFile {folder.identity}\n"
        f"    IdentitiesOnly yes\n    UserKnownHostsFile {folder.known_hosts}\n    StrictHostKeyChecking yes\n"
        "    BatchMode yes\n    ConnectTimeout 20\n"
    )
