"""Faults of the network on this host: what would be done, done, and counted. Undone by the guard, with the same steps.

`near` are the names of this host's servers, `far` those of their peers, as addresses or as this host resolves them.
Nothing is ever done to an address of our own, nor to SSH. What has been made bears our name (a table `pdchaos_…`, a
qdisc `7db1:`), so that it is found again by whoever looks for leftovers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost import addresses, commands, netfilter, shaping
from chaos.outpost.netfilter import IN, OF_10000, OUT, Cut
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

FILTERED = ("partition", "port-block", "loss")
SHAPED = ("rate", "delay")
NET_ADMIN = 12
"""The number of CAP_NET_ADMIN (linux/capability.h)."""


def plan(
    kind: str,
    run: str,
    number: int,
    near: Sequence[str],
    far: Sequence[str],
    *,
    ssh_ports: Sequence[int] = (),
    over_ssh: bool = False,
    direction: str = "both",
    ports: Sequence[int] = (),
    share: float = 1.0,
    bit_per_s: int = 0,
    delay_ms: float = 0.0,
    jitter_ms: float = 0.0,
) -> dict[str, Any]:
    """What a fault would do here, checked by the kernel, and nothing touched. Raises Trouble.

    `direction` is seen from here; `share` the part of the packets that a loss drops; `ssh_ports` what else than this
    host's own sshd is let through; `over_ssh` whether we must have come that way. Gives `steps` for `net.carry_out`,
    `undo` for the guard, `watch` for `net.counters`.
    """
    _may_administer()
    keep = _ssh_ports(ssh_ports, over_ssh)
    ours, theirs = _ends(near, far)
    if kind in FILTERED:
        table = netfilter.table_name(run, number)
        ways = {"both": (IN, OUT), "in": (IN,), "out": (OUT,)}["in" if kind in ("port-block", "loss") else direction]
        cuts = [Cut(way, tuple(ports), max(round(share * OF_10000), 1)) for way in ways]
        text = netfilter.script(table, ours, theirs, keep, cuts)
        netfilter.would_work(text)
        return {
            "steps": [{"argv": ["nft", "-f", "-"], "stdin": text}],
            "undo": [{"argv": ["nft", "delete", "table", "inet", table], "gone": {"table": table}}],
            "watch": {"table": table},
        }
    shape = shaping.leaf(bit_per_s=bit_per_s, delay_ms=delay_ms, jitter_ms=jitter_ms)
    shaping.would_work(theirs, keep, shape)
    by_device = shaping.devices(theirs)
    for device in by_device:
        shaping.must_be_free(device)
    made = [argv for device, towards in by_device.items() for argv in shaping.steps(device, towards, keep, shape)]
    return {
        "steps": [{"argv": argv} for argv in made],
        "undo": [{"argv": shaping.undoing(device), "gone": {"qdisc": device}} for device in by_device],
        "watch": {"devices": list(by_device)},
    }


def carry_out(steps: Sequence[dict[str, Any]]) -> None:
    """Take the steps of a plan. Raises Trouble at the first that fails; those before it stand."""
    for step in steps:
        done = commands.run(step["argv"], step.get("stdin", ""))
        if done.returncode:
            raise Trouble("failed", f"{step['argv'][0]} said: {commands.complaint(done)}")


def counters(*, table: str = "", devices: Sequence[str] = ()) -> dict[str, int]:
    """What the rules of a plan (its `watch`) have met so far. Raises Trouble `gone` when they are not there."""
    return netfilter.counters(table) if table else shaping.counters(devices)


def _may_administer() -> None:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        raise Trouble("missing", "this host has no /proc; faults of the network need Linux") from None
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    if not int(effective, 16) >> NET_ADMIN & 1:
        raise Trouble("denied", "this user may not change the network of this host (it takes root or CAP_NET_ADMIN)")


def _ssh_ports(more: Sequence[int], over_ssh: bool) -> list[int]:
    came = addresses.ssh()
    if came is None and over_ssh:
        raise Trouble("ssh-unknown", "this host does not tell by which connection we came, so it could be cut")
    return sorted({addresses.SSH_PORT, *more, *([came["port"]] if came else [])})


def _ends(near: Sequence[str], far: Sequence[str]) -> tuple[list[str], list[str]]:
    """The addresses of this host and its servers, and those of the peers. Raises Trouble where they are the same."""
    ours = list(dict.fromkeys([*addresses.local(), *addresses.resolve(near)]))
    theirs = addresses.resolve(far)
    shared = [address for address in theirs if address in ours]
    if shared:
        raise Trouble("shared", f"the peers have an address of this host ({shared[0]}): no network lies between them")
    return ours, theirs


OPS: dict[str, Callable[..., Any | None]] = {
    "net.plan": plan,
    "net.carry_out": carry_out,
    "net.counters": counters,
}
