"""The network between the hosts: a bridge in the supervisor's own namespace, a cable to each host."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from testbed.errors import BedError
from testbed.needs import program
from testbed.plan import PREFIX, SSH_PORT

if TYPE_CHECKING:
    from collections.abc import Sequence

BRIDGE = "switch"
DEVICE = "eth0"  # in a host
_TABLE = "barrier"
_BOTH_WAYS = (("saddr", "daddr"), ("daddr", "saddr"))
_TIMEOUT_S = 30.0


def run_ip(*lines: str) -> None:
    """A batch of `ip` commands in the present namespace."""
    _run([program("ip"), "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: Sequence[str], text: str) -> None:
    told = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if told.returncode:
        raise BedError(f"{' '.join(command)}: {told.stderr.strip()}\n{text}")


def make_switch() -> None:
    """The bridge; no spanning tree, so that a cable works at once."""
    run_ip(f"link add name {BRIDGE} type bridge stp_state 0 forward_delay 0", f"link set {BRIDGE} up", "link set lo up")


def plug_in(port: str, pid: int) -> None:
    """A cable from the bridge to the network namespace of process `pid`, which is named as this one sees it."""
    run_ip(
        f"link add name {port} type veth peer name {DEVICE} netns {pid}",
        f"link set {port} master {BRIDGE}",
        f"link set {port} up",
    )


def configure(address: str) -> None:
    """In a host: its addresses."""
    run_ip("link set lo up", f"addr add {address}/{PREFIX} dev {DEVICE}", f"link set {DEVICE} up")


def barrier(laptop: str, cut: Sequence[str], *, only_ssh: bool) -> str:
    """An nft script for the switch: the laptop and the addresses in `cut` do not hear of each other any more.

    With `only_ssh` the laptop reaches nothing but SSH on the others. ARP always goes through: a host that was reached
    before must fall silent, not become unreachable with an error at once.
    """
    rules = [f"ip {one} {laptop} ip {other} {host} drop" for host in cut for one, other in _BOTH_WAYS]
    if only_ssh:
        rules.append(f"ip saddr {laptop} tcp dport != {SSH_PORT} drop")
    table = f"table bridge {_TABLE}"
    lines = "\n".join(("type filter hook forward priority 0; policy accept;", *rules))
    return f"{table}\ndelete {table}\n{table} {{ chain forward {{ {lines}\n}}\n}}\n"
