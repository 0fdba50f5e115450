"""The decode's view of prefill nodes: discovery over `/route`, control frames over PUSH sockets, heartbeats."""

from __future__ import annotations

import array
import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import aiohttp
import zmq

from chaos.lab.sim.config import LOOPBACK
from chaos.lab.sim.control import ABORT_TAG, GUARD, NO_ROOM

if TYPE_CHECKING:
    from chaos.lab.sim.config import Clocks
    from chaos.lab.sim.lines import Log

FETCH_ATTEMPTS = 15
HEARTBEAT_MAX_FAILURES = 2
_LEAST_HTTP_TIMEOUT_S = 1.0  # scaled timeouts must not call a starved machine's peer dead
_TOPOLOGY = "prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
_RANK = "prefill_dp_rank={dp}&prefill_cp_rank=0&target_tp_rank={tp}&target_pp_rank=0"


class PeerEvents(Protocol):
    """Who is told what became of a prefill node."""

    def on_peer_ready(self, peer: PrefillPeer) -> None:
        """Its control socket is known, and we are registered there."""

    def on_peer_unknown(self, peer: PrefillPeer, reason: str) -> None:
        """It could not be found."""

    def on_peer_lost(self, peer: PrefillPeer) -> None:
        """It was healthy before and does not answer any more."""

    def halt(self) -> None:
        """A send blocks the scheduler's own thread."""

    def go(self) -> None:
        """It got through."""


@dataclass(slots=True, eq=False)
class PrefillPeer:
    """One prefill node, by the address of its bootstrap server."""

    addr: str
    sockets: dict[tuple[int, int], zmq.Socket[bytes]] = field(default_factory=dict)  # by data-, tensor-parallel rank
    missed: int = 0
    fetching: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def ready(self) -> bool:
        """Whether frames can be sent."""
        return bool(self.sockets)

    def of(self, room: int) -> list[zmq.Socket[bytes]]:
        """The control sockets of every rank that a room concerns."""
        dp_size = 1 + max(dp for dp, _ in self.sockets)
        return [socket for (dp, _), socket in self.sockets.items() if dp == room % dp_size]

    def close(self) -> None:
        """Close every socket, with whatever is not sent yet."""
        for socket in self.sockets.values():
            socket.close(linger=0)
        self.sockets = {}


class Peers:
    """Every prefill node this decode node has talked to."""

    def __init__(
        self, *, agent: str, kv_port: int, clocks: Clocks, events: PeerEvents, log: Log, address: str = LOOPBACK
    ) -> None:
        self.log = log
        self._agent = agent
        self._address = address
        self._kv_port = kv_port
        self._clocks = clocks
        self.events = events
        self._peers: dict[str, PrefillPeer] = {}
        self._lost: set[str] = set()
        self.own: zmq.Socket[bytes] = zmq.Context.instance().socket(
            zmq.PULL
        )  # part of every frame; NIXL's decode reads nothing from it
        self._own_port: int = self.own.bind_to_random_port(f"tcp://{address}")
        timeout = aiohttp.ClientTimeout(total=max(clocks.health_pause_s * 3, _LEAST_HTTP_TIMEOUT_S))
        self._http = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True))

    def get(self, addr: str) -> PrefillPeer:
        """The peer at a bootstrap address; an unknown one is looked up in the background."""
        peer = self._peers.get(addr)
        if peer is None:
            if addr in self._lost:
                self._lost.discard(addr)
                self.log(f"Attempting to reconnect to {addr}...")
            peer = self._peers[addr] = PrefillPeer(addr)
            peer.fetching = asyncio.create_task(self._fetch(peer))
        return peer

    # ------------------------------------------------------------------ frames

    def send_transfer_info(self, peer: PrefillPeer, room: int, *, pages: int, aux_index: int) -> None:
        """Tell prefill where a room's KV goes. There is no acknowledgement, and the send has no timeout."""
        indices = array.array("i", range(pages)).tobytes()
        frames = [GUARD, *self._room_and_me(room), self._agent.encode(), indices, b"%d" % aux_index, b"1", b"", b"0"]
        for socket in peer.of(room) if peer.ready else ():
            self.send(socket, frames)

    def send_abort(self, peer: PrefillPeer, room: int) -> None:
        """Give a room up (`CommonKVReceiver.abort`, 0.5.13 and later)."""
        for socket in peer.of(room) if peer.ready else ():
            self.send(socket, [ABORT_TAG, *self._room_and_me(room)])

    def _register(self, peer: PrefillPeer) -> None:
        metadata = f"{self._address}:{self._kv_port}".encode()
        frames = [GUARD, NO_ROOM, *self._me(), self._agent.encode(), metadata, b"", b"", b"", b"0", b"1", b"0", b"64"]
        for socket in peer.sockets.values():
            self.send(socket, frames)

    def _me(self) -> list[bytes]:
        return [self._address.encode(), b"%d" % self._own_port]

    def _room_and_me(self, room: int) -> list[bytes]:
        return [b"%d" % room, *self._me()]

    def send(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        """Send; a seam for builds."""
        socket.send_multipart(frames)

    def connect(self, where: str) -> zmq.Socket[bytes]:
        """A socket to a rank's control socket."""
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
        self.set_options(socket)
        socket.connect(where)
        return socket

    def set_options(self, socket: zmq.Socket[bytes]) -> None:
        """Options of a socket before it connects (none before 0.5.17); a seam for builds."""

    # ------------------------------------------------------------------ discovery and heartbeat

    async def _fetch(self, peer: PrefillPeer) -> None:
        for attempt in range(FETCH_ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._clocks.fetch_pause_s)
            try:
                async with self._http.get(f"http://{peer.addr}/route?{_TOPOLOGY}") as reply:
                    if reply.status != 200:
                        text = await reply.text()
                        self.log(f"Failed to get prefill server info: {reply.status}, {text}")
                        continue
                    topology = await reply.json()
                ranks = itertools.product(range(topology["dp_size"]), range(topology["attn_tp_size"]))
                found = {}
                for dp, tp in ranks:
                    async with self._http.get(f"http://{peer.addr}/route?{_RANK.format(dp=dp, tp=tp)}") as reply:
                        rank = await reply.json()
                    found[dp, tp] = f"tcp://{rank['rank_ip']}:{rank['rank_port']}"
            except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
                self.log(f"Error fetching prefill server info from bootstrap: {error}")
                continue
            peer.sockets = {at: self.connect(where) for at, where in found.items()}
            self._register(peer)
            self.events.on_peer_ready(peer)
            return
        reason = f"Could not fetch prefill parallel info from {peer.addr} after {FETCH_ATTEMPTS} attempts"
        self.log(reason)
        self._peers.pop(peer.addr, None)
        self.events.on_peer_unknown(peer, reason)

    async def heartbeat(self) -> None:
        """Ask every known prefill's bootstrap server whether it lives, until cancelled."""
        while True:
            await asyncio.sleep(self._clocks.heartbeat_s)
            for peer in [peer for peer in self._peers.values() if peer.ready]:
                peer.missed = 0 if await self._is_alive(peer) else peer.missed + 1
                if peer.missed >= HEARTBEAT_MAX_FAILURES:
                    self.drop(peer)

    async def _is_alive(self, peer: PrefillPeer) -> bool:
        try:
            async with self._http.get(f"http://{peer.addr}/health") as reply:
                return reply.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def drop(self, peer: PrefillPeer) -> None:
        """Forget a prefill that died, its sockets with it; the next request looks it up anew. A seam for builds."""
        self._peers.pop(peer.addr, None)
        self._lost.add(peer.addr)
        peer.close()
        self.events.on_peer_lost(peer)
