"""Packets between hosts dropped: a table of nftables of our own, beside those of others, which stay as they are.

Packets are met before routing and after it, so that containers behind an address of this host are cut off with it,
and only those between `near` and `far` addresses: what this host forwards for others passes. SSH passes first of all.
Each rule counts what it met.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.outpost import commands
from chaos.outpost.addresses import split
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = "pdchaos_"
IN, OUT = "in", "out"
_HOOKS = {IN: "prerouting priority -300", OUT: "postrouting priority 300"}
"""Before connection tracking and any translation of addresses; after all of it."""
_COUNTED = re.compile(r'counter packets (\d+) bytes (\d+).* comment "([a-z-]+)"')
OF_10000 = 10000


@dataclass(frozen=True)
class Cut:
    """Which packets are dropped: in one direction, all of them or those to some ports, or one now and then."""

    direction: str
    ports: Sequence[int] = ()
    of_10000: int = OF_10000


def table_name(run: str, number: int) -> str:
    """The name of a run's table; a sweep knows it by its beginning."""
    return f"{PREFIX}{re.sub('[^A-Za-z0-9]', '_', run)}_{number}"


def script(table: str, near: Sequence[str], far: Sequence[str], ssh_ports: Sequence[int], cuts: Sequence[Cut]) -> str:
    """What `nft -f -` reads: the table, whole or not at all."""
    lines = [f"table inet {table} {{"]
    for way in (IN, OUT):
        lines.append(f" chain {way} {{ type filter hook {_HOOKS[way]}; policy accept;")
        ports = _set(sorted(set(ssh_ports)))
        lines += [f'  tcp {end} {ports} counter accept comment "ssh-{way}"' for end in ("dport", "sport")]
        pairs = _between(near, far, way)
        lines += [f'  {pair} counter comment "seen-{way}"' for pair in pairs]
        for cut in cuts:
            if cut.direction == way:
                lines += [
                    f'  {pair}{what} counter drop comment "dropped-{way}"' for pair in pairs for what in _what(cut)
                ]
        lines.append(" }")
    return "\n".join([*lines, "}", ""])


def _between(near: Sequence[str], far: Sequence[str], way: str) -> list[str]:
    pairs = []
    for family, ours, theirs in zip(("ip", "ip6"), split(near), split(far)):
        if ours and theirs:
            here, there = ("daddr", "saddr") if way == IN else ("saddr", "daddr")
            pairs.append(f"{family} {there} {_set(theirs)} {family} {here} {_set(ours)}")
    return pairs


def _what(cut: Cut) -> list[str]:
    if cut.ports:
        return [f" {protocol} dport {_set(cut.ports)}" for protocol in ("tcp", "udp")]
    return ["" if cut.of_10000 >= OF_10000 else f" numgen random mod {OF_10000} < {cut.of_10000}"]


def _set(values: Sequence[object]) -> str:
    return "{ " + ", ".join(map(str, values)) + " }"


def would_work(text: str) -> None:
    """Have the kernel check a table without making it. Raises Trouble with its reason."""
    done = commands.run(["nft", "-c", "-f", "-"], text)
    if done.returncode:
        raise Trouble("kernel", f"this kernel refuses such rules: {commands.complaint(done)}")


def is_gone(table: str) -> bool:
    """Whether the kernel says for certain that there is no such table."""
    try:
        done = commands.run(["nft", "list", "tables", "inet"])
    except Trouble:
        return False
    return done.returncode == 0 and f"table inet {table}" not in done.stdout.splitlines()


def counters(table: str) -> dict[str, int]:
    """Packets that each kind of rule met (`seen-in`, `dropped-out`, `ssh-in`). Raises Trouble `gone`."""
    done = commands.run(["nft", "list", "table", "inet", table])
    if done.returncode:
        raise Trouble("gone", f"there is no table {table}")
    found: dict[str, int] = {}
    for packets, _, what in _COUNTED.findall(done.stdout):
        found[what] = found.get(what, 0) + int(packets)
    return found
