"""Packets towards some addresses slowed down: a qdisc of our own at the root of the interfaces that lead there.

Only where an interface has the default qdisc, which the kernel puts back when ours goes; one that somebody chose is
never touched. Everything else on the interface passes unshaped, and so does SSH.
"""

from __future__ import annotations

import re
import shlex
import socket
from typing import TYPE_CHECKING

from chaos.outpost import commands
from chaos.outpost.addresses import split
from chaos.outpost.tools import which
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT, LEAF = "7db1:", "7db2:"
"""Major handles by which a qdisc is known to be ours."""
UNSHAPED, SHAPED = f"{ROOT}0", f"{ROOT}1"
WIDE = "32gbit"
"""A rate that holds up nobody, and that fits into 32 bits of bytes per second."""
QUEUE_S = 0.2
LEAST_QUEUE = 256 * 1024
"""A queue must hold several of the packets of 64 kB that the kernel hands down to be cut up later."""
NETEM_QUEUE = 10000  # packets; what is under way counts
_FIRST, _MOST_STEPS = 10, 100
"""Exit codes tell which command failed."""
_DEVICE = re.compile(r"\bdev (\S+)")
_QDISC = re.compile(r"^qdisc (\S+) ([0-9a-f]+:)(?: dev (\S+))? (root|parent \S+)?.*$", re.MULTILINE)
_SENT = re.compile(r"Sent (\d+) bytes (\d+) pkt \(dropped (\d+), overlimits (\d+)")


def devices(far: Sequence[str]) -> dict[str, list[str]]:
    """The interfaces that lead to these addresses, and which of them each. Raises Trouble."""
    found: dict[str, list[str]] = {}
    for address in far:
        done = commands.run(["ip", "route", "get", address])
        match = _DEVICE.search(done.stdout)
        if done.returncode or match is None:
            raise Trouble("no-route", f"this host knows no way to a peer: {commands.complaint(done)}")
        if match[1] == "lo":
            raise Trouble("shared", "a peer's address is one of this host")
        found.setdefault(match[1], []).append(address)
    return found


def leaf(*, bit_per_s: int = 0, delay_ms: float = 0.0, jitter_ms: float = 0.0) -> tuple[str, list[str]]:
    """What shapes: the rate of its class, and the queue below. Either a rate or a delay."""
    if bit_per_s:
        return f"{bit_per_s}bit", ["bfifo", "limit", str(max(LEAST_QUEUE, int(bit_per_s / 8 * QUEUE_S)))]
    delay = ["netem", "limit", str(NETEM_QUEUE), "delay", f"{delay_ms:.3f}ms"]
    return WIDE, [*delay, f"{jitter_ms:.3f}ms"] if jitter_ms else delay


def steps(device: str, far: Sequence[str], ssh_ports: Sequence[int], shape: tuple[str, list[str]]) -> list[list[str]]:
    """The commands, the first of which fails where another qdisc than the default one is; nothing is replaced."""
    rate, queue = shape
    on = ["tc", "qdisc", "add", "dev", device]
    made = [
        [*on, "root", "handle", ROOT, "htb", "default", "0"],
        [
            "tc",
            "class",
            "add",
            "dev",
            device,
            "parent",
            ROOT,
            "classid",
            SHAPED,
            "htb",
            "rate",
            rate,
            "quantum",
            "1514",
        ],
        [*on, "parent", SHAPED, "handle", LEAF, *queue],
    ]
    filters = ["tc", "filter", "add", "dev", device, "parent", ROOT]
    for order, (protocol, word, addresses, whole) in enumerate(
        zip(("ip", "ipv6"), ("ip", "ip6"), split(far), ("32", "128")), 1
    ):
        if not addresses:
            continue
        first, then = [*filters, "protocol", protocol, "prio", str(order), "u32"], str(order + 2)
        for port in sorted(set(ssh_ports)):
            for end in ("sport", "dport"):
                of_ssh = ["match", word, "protocol", "6", "0xff", "match", word, end, str(port), "0xffff"]
                made.append([*first, *of_ssh, "flowid", UNSHAPED])
        made += [
            [
                *filters,
                "protocol",
                protocol,
                "prio",
                then,
                "u32",
                "match",
                word,
                "dst",
                f"{address}/{whole}",
                "flowid",
                SHAPED,
            ]
            for address in addresses
        ]
    return made


def undoing(device: str) -> list[str]:
    """The command that takes our qdisc away with all below it; it fails where the root is not ours."""
    return ["tc", "qdisc", "del", "dev", device, "root", "handle", ROOT]


def root_of(device: str) -> tuple[str, str]:
    """Kind and handle of an interface's root qdisc. Raises Trouble."""
    done = commands.run(["tc", "qdisc", "show", "dev", device])
    if done.returncode:
        raise Trouble("no-device", f"{device}: {commands.complaint(done)}")
    for kind, handle, _, place in _QDISC.findall(done.stdout):
        if place == "root":
            return kind, handle
    return "", ""


def is_gone(device: str) -> bool:
    """Whether certainly no qdisc of ours is at the root of an interface, or there is no such interface."""
    try:
        there = device in {name for _, name in socket.if_nameindex()}
        return not there or root_of(device)[1] != ROOT
    except (OSError, Trouble):
        return False


def must_be_free(device: str) -> None:
    """Raise Trouble unless the interface has the default root qdisc, whose handle is 0."""
    kind, handle = root_of(device)
    if handle == ROOT:
        raise Trouble("taken", f"{device} is shaped by pdchaos already: by another step, or by a run that left it")
    if handle not in ("0:", ""):
        raise Trouble("taken", f"somebody chose the qdisc of {device} ({kind} {handle}), which is left as it is")


def would_work(far: Sequence[str], ssh_ports: Sequence[int], shape: tuple[str, list[str]]) -> None:
    """Play the commands in a network namespace of their own, which is gone afterwards. Raises Trouble.

    Where no such namespace may be made nothing is known, and the real commands will tell.
    """
    if which("unshare") is None or commands.run(["unshare", "-n", "true"]).returncode:
        return
    tool, made = commands.need("tc"), steps("lo", far, ssh_ports, shape)
    script = "\n".join(
        f"{shlex.join([tool, *argv[1:]])} || exit {_FIRST + at}" for at, argv in enumerate(made[:_MOST_STEPS])
    )
    done = commands.run(["unshare", "-n", "sh", "-c", script])
    if done.returncode:
        failed = made[min(max(done.returncode - _FIRST, 0), len(made) - 1)]
        kind = next((word for word in ("netem", "bfifo", "u32", "htb") if word in failed), "tc")
        raise Trouble("kernel", f"this kernel cannot do it: {kind}: {commands.complaint(done)}")


def counters(shaped: Sequence[str]) -> dict[str, int]:
    """What went through our queues on these interfaces: bytes, packets, dropped, held_up. Raises Trouble `gone`."""
    found = dict.fromkeys(("bytes", "packets", "dropped", "held_up"), 0)
    for device in shaped:
        done = commands.run(["tc", "-s", "qdisc", "show", "dev", device])
        blocks = {block.split()[1]: block for block in re.split(r"^qdisc ", done.stdout, flags=re.MULTILINE) if block}
        if done.returncode or ROOT not in blocks or LEAF not in blocks:
            raise Trouble("gone", f"there is no qdisc of ours on {device}")
        sent, whole = _SENT.search(blocks[LEAF]), _SENT.search(blocks[ROOT])
        if sent is not None and whole is not None:
            found["bytes"] += int(sent[1])
            found["packets"] += int(sent[2])
            found["dropped"] += int(sent[3])
            found["held_up"] += int(whole[4])
    return found
