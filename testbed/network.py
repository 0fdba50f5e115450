"""The network between the hosts: a bridge in the supervisor's own namespace, a cable to each host."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from testbed.errors import BedError
from testbed.needs import program
from testbed.plan import PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

BRIDGE = "switch"
DEVICE = "eth0"  # in a host
CUT_TABLE = "cut"
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


def cutting(pairs: Sequence[tuple[str, str]]) -> str:
    """An nft script for the switch under which no packet goes between the two addresses of a pair, either way.

    ARP goes through: a host that was reached before must fall silent, not become unreachable with an error at once.
    """
    rules = "".join(
        f"ip saddr {one} ip daddr {other} drop\nip saddr {other} ip daddr {one} drop\n" for one, other in pairs
    )
    table = f"table bridge {CUT_TABLE}"
    chain = f"chain forward {{ type filter hook forward priority 0; policy accept;\n{rules}}}\n"
    return f"{table}\ndelete {table}\n" + (f"{table} {{ {chain}}}\n" if pairs else "")
