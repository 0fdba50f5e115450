"""The two ends of a network fault: which nodes, on which hosts, by which addresses, and what else shares their fate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chaos.engine.faults.select import choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.engine.hosts import Host, Hosts
    from chaos.model.actions import NetworkAction
    from chaos.model.target import Server

LOOPBACK = ("127.", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class End:
    """Nodes on one host, which is where the fault is made."""

    host: Host
    near: tuple[Server, ...]
    far: tuple[Server, ...]  # their peers

    @property
    def name(self) -> str:
        """The nodes, as they stand in a journal."""
        return ", ".join(server.id for server in self.near)


def address_of(server: Server) -> str:
    """By which its peers reach a server: an address, or a name."""
    return (server.spec.address or urlsplit(server.spec.url).hostname or "").strip("[]")


def port_of(server: Server) -> int:
    """Where a server listens."""
    url = urlsplit(server.spec.url)
    return url.port or (443 if url.scheme == "https" else 80)


def is_loopback(address: str) -> bool:
    """Whether it is an address that every host has for itself."""
    return address.startswith(LOOPBACK)


def peers_of(action: NetworkAction, chosen: Sequence[Server], servers: Sequence[Server], turn: int) -> list[Server]:
    """The peers of the chosen nodes; of several as many as their mode says, without the nodes themselves."""
    others = [server for server in servers if server not in chosen]
    return list(choose(action.peers, others, turn=turn))


def ends(chosen: Sequence[Server], peers: Sequence[Server], hosts: Hosts) -> list[End]:
    """The chosen nodes by their hosts, in the target's order."""
    found: dict[int, list[Server]] = {}
    for server in chosen:
        found.setdefault(id(hosts.at(server.id)), []).append(server)
    return [End(hosts.at(near[0].id), tuple(near), tuple(peers)) for near in found.values()]


def shares_address(one: Server, other: Server) -> bool:
    """Whether two servers are at the same address, so that no network lies between them."""
    return address_of(one) == address_of(other) or (is_loopback(address_of(one)) and is_loopback(address_of(other)))


def sharing(some: Sequence[Server], servers: Sequence[Server], hosts: Hosts) -> list[Server]:
    """These servers, and whatever else is at their addresses or on their hosts: it shares their fate."""
    return [
        server
        for server in servers
        if any(
            server == one
            or shares_address(server, one)
            or (hosts.at(one.id).remote and hosts.at(server.id) is hosts.at(one.id))
            for one in some
        )
    ]


async def is_here(host: Host, server: Server) -> bool:
    """Whether a server is on the host through which it is reached, so that this can speak for it."""
    return host.remote or bool(await host.call("net.is_here", name=address_of(server)))
