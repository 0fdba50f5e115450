"""How requests reach servers: directly, or through relays of the hosts they are on.

A server behind a relay has addresses of our own making in place of its URLs, one for each place that is asked: two
hosts may well have the same address as seen from themselves. Whoever asks over HTTP knows what they stand for
(`chaos.engine.probes.relayed`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from chaos.engine.hosts.host import HostLost, HostTrouble
from chaos.engine.hosts.relay import Door, Relay, private_folder
from chaos.engine.hosts.remote import Remote
from chaos.model.errors import Unfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.engine.hosts.host import Host
    from chaos.engine.hosts.hosts import Hosts
    from chaos.engine.hosts.relay import Far, Gap
    from chaos.model.target import ServerSpec, Target

SUFFIX = ".pdchaos"
WINDOW = 1 << 18
"""Of probes: a page of metrics must come within a few round trips."""
CLIENTS_WINDOW = 1 << 15
"""Of the load: what a client does not take must soon be felt by its server."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A place behind a relay: its authority as seen from the host, the door that leads there, and whose door it is."""

    netloc: str
    door: Door
    relay: Relay


class Relays:
    """The relays of a target; none where requests go directly."""

    def __init__(self) -> None:
        self._relays: dict[Relay, tuple[str, ...]] = {}  # and whose way it is
        self._names: dict[tuple[str, str], str] = {}  # of a server and an authority
        self.entries: dict[str, Entry] = {}
        """By the name that stands for it in URLs."""
        self.clients: Entry | None = None
        """Where local agents find the router, if not directly."""
        self._folder = ""

    @classmethod
    def open(
        cls,
        target: Target,
        hosts: Hosts,
        *,
        run: str,
        dial: Callable[[Host], Callable[[], tuple[Far, bytes]]] | None = None,
    ) -> Relays:
        """Start a relay to each host that servers are on, over its SSH connection. Raises Unfit."""
        relays = cls()
        dial = dial or _by_ssh
        if target.via == "direct":
            return relays
        try:
            for host in hosts.all:
                servers = hosts.servers_at(host)
                if host.remote and servers:
                    relays._start(target, host, servers, dial(host), run)
        except (HostLost, HostTrouble) as why:
            relays.close()
            raise Unfit(f"requests cannot go through SSH: {why}", hint="`via: direct` needs no relay") from None
        except BaseException:
            relays.close()
            raise
        return relays

    def url(self, server: str, url: str) -> str:
        """What to ask in place of a URL of a server."""
        parts = urlsplit(url)
        name = self._names.get((server, parts.netloc))
        return url if name is None else urlunsplit(parts._replace(netloc=name))

    def broke(self, url: str, from_ns: int, to_ns: int) -> bool:
        """Whether the way to a URL, as `url` gave it, broke between two moments."""
        entry = self.entries.get(urlsplit(url).netloc)
        return entry is not None and entry.relay.broke(from_ns, to_ns)

    @property
    def clients_door(self) -> str | None:
        """The Unix socket through which agents on this machine reach the router; None where they do so directly."""
        return self.clients.door.path if self.clients else None

    def clients_broke(self, from_ns: int, to_ns: int) -> bool:
        """Whether that way broke between two moments."""
        return self.clients is not None and self.clients.relay.broke(from_ns, to_ns)

    def clients_away(self) -> bool:
        """Whether that way is known to be gone at the moment."""
        return self.clients is not None and not self.clients.relay.up

    def gaps(self, *, last: bool = False) -> list[tuple[str, Gap]]:
        """When nothing came through to which server, since this was last asked; `last`: it will not be asked again."""
        told = [(servers, gap) for relay, servers in self._relays.items() for gap in relay.gaps(last=last)]
        return [(server, gap) for servers, gap in told for server in servers]

    def close(self) -> None:
        """End all of them."""
        for relay in self._relays:
            relay.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    # ------------------------------------------------------------------------------------ inside

    def _start(
        self, target: Target, host: Host, servers: tuple[str, ...], dial: Callable[[], tuple[Far, bytes]], run: str
    ) -> None:
        self._folder = self._folder or private_folder()
        wanted = {
            (server.id, netloc): address
            for server in target.servers
            if server.id in servers
            for netloc, address in _places(server.spec)
        }
        doors: dict[tuple[str, int], Door] = {}
        for address in dict.fromkeys(wanted.values()):
            doors[address] = self._door(address, WINDOW, len(self.entries) + len(doors))
        router = next(server for server in target.servers if server.role == "router")
        clients = None
        if router.id in servers and target.via == "tunnel":
            netloc = urlsplit(router.spec.url).netloc
            clients = self._door(wanted[router.id, netloc], CLIENTS_WINDOW, -1)
        relay = Relay(host.label, dial, [*doors.values(), *([clients] if clients else [])], run=run)
        self._relays[relay] = servers
        names: dict[tuple[str, str], str] = {}
        for (server_id, netloc), address in wanted.items():
            name = names.setdefault((netloc, doors[address].path), f"door-{len(self.entries)}{SUFFIX}")
            self.entries.setdefault(name, Entry(netloc, doors[address], relay))
            self._names[server_id, netloc] = name
        if clients is not None:
            self.clients = Entry(urlsplit(router.spec.url).netloc, clients, relay)
        relay.open()

    def _door(self, address: tuple[str, int], window: int, number: int) -> Door:
        name = "clients" if number < 0 else str(number)
        return Door(f"{self._folder}/{name}", *address, window)


def _by_ssh(host: Host) -> Callable[[], tuple[Far, bytes]]:
    assert isinstance(host, Remote)  # noqa: S101 - there is no other host elsewhere

    def dial() -> tuple[Far, bytes]:
        started = host.start("relay")
        return started.channel, started.rest

    return dial


def _places(spec: ServerSpec) -> Iterator[tuple[str, tuple[str, int]]]:
    """Every authority that is asked of a server, and the address that it means."""
    urls = [spec.url, *([spec.metrics] if spec.metrics else [])]
    if spec.bootstrap_port is not None:
        urls.append(bootstrap_url(spec))
    for url in urls:
        parts = urlsplit(url)
        yield parts.netloc, (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))


def bootstrap_url(spec: ServerSpec) -> str:
    """Where a prefill's bootstrap server answers."""
    host = spec.bootstrap_host or urlsplit(spec.url).hostname or ""
    return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{spec.bootstrap_port}"
