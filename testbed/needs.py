"""What this machine lacks for a bed."""

from __future__ import annotations

import os
import shutil
import subprocess

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
_PROGRAMS = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
_TIMEOUT_S = 20.0


def missing() -> str:
    """Why no bed can be started here, with the remedy; empty when one can."""
    if os.geteuid() != 0:
        return "namespaces, bridges and sshd need root"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        packages = " ".join(sorted({_PROGRAMS[name] for name in absent}))
        return f"not found: {', '.join(absent)} (apt-get install {packages})"
    tried = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork"]
    bridge = "ip link add name switch type bridge && ip link add name port0 type veth peer name eth0"
    told = subprocess.run([*tried, "sh", "-c", bridge], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if told.returncode:
        return f"this machine allows no namespaces with bridges: {told.stderr.strip()}"
    return ""


def program(name: str) -> str:
    """The full path of a program: sshd must be started by it, and PATH of a service often lacks /usr/sbin."""
    return shutil.which(name, path=_PATH) or name
