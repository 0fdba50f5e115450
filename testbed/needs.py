"""What this machine lacks for a bed."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
_PROGRAMS = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
_PROBE = """
PATH=$PATH:/usr/sbin:/sbin
ip link add name switch type bridge
ip link add name port0 type veth peer name eth0
nft add table bridge barrier
mount -t tmpfs tmpfs /tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
"""
_TIMEOUT_S = 20.0


@cache
def missing() -> str:
    """Why no bed can be started here, with the remedy; empty when one can."""
    if os.geteuid() != 0:
        return "namespaces, bridges and sshd need root"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        packages = " ".join(sorted({_PROGRAMS[name] for name in absent}))
        return f"not found: {', '.join(absent)} (apt-get install {packages})"
    command = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "sh", "-ec", _PROBE]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if told.returncode:
        return f"this machine does not allow root what a bed needs: {told.stderr.strip()}"
    return ""


def program(name: str) -> str:
    """The full path of a program: sshd must be started by it, and PATH of a service often lacks /usr/sbin."""
    return shutil.which(name, path=_PATH) or name
