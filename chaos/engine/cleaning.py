"""The last look of a run at its hosts: is anything of it left there, and what nobody knows.

What was undone and measured is not believed once more, it is looked for: records, rules and queues that bear the run's
name. A host that was lost while a fault stood heals itself; whether it has is known only once it answers again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.hosts.host import HostLost, HostTrouble
from chaos.engine.hosts.lock import TTL_S
from chaos.engine.leftovers import Item
from chaos.model.outcomes import Cleanup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.engine.hosts import Host, Hosts

LOOK_S = 20.0
STANDING = ("fault", "table", "qdisc")
"""What breaks something; processes of ours end with the connection."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A fault of which nobody knows whether it still stands."""

    fault: str
    nodes: tuple[str, ...]
    ttl_s: float | None

    @property
    def told(self) -> str:
        """For people: what is not known, and what becomes of it."""
        healing = "nothing there takes it back" if self.ttl_s is None else f"within {self.ttl_s:g} s it heals itself"
        where = f"the host of {', '.join(self.nodes)}" if self.nodes else "a host"
        return f"{self.fault}: {where} does not answer; {healing}, and `pdchaos sweep` shows what is left"


async def last_look(
    run_id: str,
    hosts: Hosts,
    *,
    known: Sequence[str],
    doubts: Sequence[Doubt],
    look: bool,
    locked: Sequence[Host] = (),
) -> tuple[Cleanup, str]:
    """Whether the hosts are as they were, and if not, why.

    `known` is what is known to be left; `doubts` go where every host concerned answers and has nothing of the run.
    Without `look` (nothing was done to any host) nobody is asked. `locked` are hosts that did not take the lock back.
    """
    left, silent = list(known), set[str]()
    for host in hosts.all if look else ():
        servers = hosts.servers_at(host)
        try:
            found = await _standing(host, run_id)
        except (HostLost, HostTrouble):
            silent.update(servers)
        else:
            left += [f"on the host of {', '.join(servers) or 'the load'}: {item.kind} {item.what}" for item in found]
    open_ = [doubt.told for doubt in doubts if not doubt.nodes or silent.intersection(doubt.nodes)]
    open_ += [
        f"the host of {', '.join(hosts.servers_at(host))} did not take this run's lock back; within {TTL_S:g} s "
        "it runs out, and what else the run started there ends with its connection"
        for host in locked
    ]
    cleanup = Cleanup.DIRTY if left else Cleanup.UNKNOWN if open_ else Cleanup.CLEAN
    return cleanup, "; ".join([*left, *open_])


async def _standing(host: Host, run_id: str) -> list[Item]:
    said = await host.call("sweep", timeout_s=LOOK_S, dry=True, runs=[])
    return [item for item in msgspec.convert(said, list[Item]) if item.kind in STANDING and item.run == run_id]
