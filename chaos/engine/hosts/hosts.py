"""Which host each server of a target is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine.hosts.here import Here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chaos.engine.hosts.host import Host
    from chaos.model.target import Target


class Hosts:
    """The hosts of a target: one object, and one connection, for each place."""

    def __init__(self, by_server: Mapping[str, Host], load: Host) -> None:
        self._by_server = dict(by_server)
        self.load = load
        """Where agents run."""

    @classmethod
    def here(cls, target: Target) -> Hosts:
        """Everything on this machine."""
        host = Here()
        return cls({server.id: host for server in target.servers}, host)

    @classmethod
    def open(cls, target: Target, progress: Callable[[str], None]) -> Hosts:  # noqa: ARG003 - connecting takes a while
        """Reach every host of a target."""
        return cls.here(target)

    def at(self, server: str) -> Host:
        """The host of a server, by its id."""
        return self._by_server[server]

    @property
    def all(self) -> tuple[Host, ...]:
        """Every host once."""
        return tuple({id(host): host for host in (*self._by_server.values(), self.load)}.values())

    def servers_at(self, host: Host) -> tuple[str, ...]:
        """The ids of the servers on a host."""
        return tuple(server for server, at in self._by_server.items() if at is host)

    def close(self) -> None:
        """Let go of all of them."""
        for host in self.all:
            host.close()
