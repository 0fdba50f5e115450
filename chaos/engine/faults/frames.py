"""Frames to a prefill rank's control socket: one that means nothing, or an ABORT for a room that nobody knows.

The socket is a ZMQ PULL socket without authentication; its port is told by the prefill's bootstrap server, as it is to
decode nodes (sglang, disaggregation/common/conn.py). Raw TCP bytes never become a message there, so the frame is sent
by what speaks its protocol as a PUSH socket does, from the prefill's own host.

There is no acknowledgement in that protocol. What can be measured: a ZMQ peer answered the handshake, and its kernel
has acknowledged every byte of the frame. Whether its thread has read it, only the target's behaviour can show.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.faults.life import Measured, NodeFault, NotApplied
from chaos.engine.hosts import HostLost, HostTrouble
from chaos.engine.hosts.relays import bootstrap_url
from chaos.engine.probes.http import TRANSPORT_ERRORS, describe

if TYPE_CHECKING:
    from chaos.engine.faults.kit import FaultKit
    from chaos.model.scenario import Step
    from chaos.model.target import Server

ROUTE = "/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0"
"""Where the first rank registered itself; decode asks the same (sglang 0.5.13 and later)."""
ASK_S = 10.0
PUSH_S = 30.0
JUNK = (b"pdchaos", b"foreign frame")
ABORT = b"ABORT"
NOBODY = (b"127.0.0.1", b"9")  # where the sender of an ABORT says that it listens; nobody answers it
ROOM_BITS = 62


class _Rank(msgspec.Struct):
    """What the bootstrap server says of a rank."""

    rank_ip: str
    rank_port: int | str


class Delivery(msgspec.Struct, frozen=True):
    """Bytes of the message, framing included, and how many of them the peer's kernel acknowledged."""

    sent: int
    acknowledged: int

    @property
    def complete(self) -> bool:
        """Whether the peer's kernel has all of it."""
        return self.acknowledged >= self.sent


@dataclass(frozen=True, slots=True)
class _Socket:
    host: str
    port: int


class FrameFault(NodeFault):
    """One message to the first rank of each chosen prefill."""

    def __init__(self, step: Step, kit: FaultKit, *, cycle: int = 1) -> None:
        super().__init__(step, kit, cycle=cycle)
        self._sent: dict[str, tuple[_Socket, Delivery]] = {}

    @abstractmethod
    def frames(self) -> tuple[bytes, ...]:
        """The parts of the message."""

    async def apply(self) -> Measured:
        """Find the sockets, then send to all of them."""
        sockets = {server.id: await self._socket(server) for server in self.chosen}
        for node, socket in sockets.items():
            delivery = await self._push(node, socket)
            self._sent[node] = (socket, delivery)
        facts = {node: f"rank 0 at port {socket.port}" for node, (socket, _) in self._sent.items()}
        return Measured(ok=bool(self._sent), facts=facts)

    async def verify(self) -> Measured:
        """What the kernel knows of the delivery; that is as far as anybody but the target can see."""
        facts = {
            node: (
                f"port {socket.port}: ZMQ handshake done, {delivery.acknowledged} of {delivery.sent} bytes "
                "acknowledged by the peer's kernel; whether its thread read them is not known"
            )
            for node, (socket, delivery) in self._sent.items()
        }
        missing = [node for node, (_, delivery) in self._sent.items() if not delivery.complete]
        detail = f"{', '.join(missing)}: the peer's kernel did not acknowledge the whole frame" if missing else ""
        return Measured(not missing, facts, detail)

    async def _push(self, node: str, socket: _Socket) -> Delivery:
        frames = [frame.hex() for frame in self.frames()]
        try:
            told = await self.kit.hosts.at(node).call(
                "zmq.push", host=socket.host, port=socket.port, frames=frames, timeout_s=PUSH_S
            )
        except (HostLost, HostTrouble) as why:
            raise NotApplied(f"{node}: {why}") from None
        return msgspec.convert(told, Delivery)

    async def _socket(self, server: Server) -> _Socket:
        """Ask the bootstrap server of a prefill where the first rank listens."""
        spec, http = server.spec, self.kit.http
        if spec.bootstrap_port is None or http is None:
            raise NotApplied(f"{server.id}: the target gives no bootstrap_port, so its control socket cannot be found")
        url = self.kit.hosts.relays.url(server.id, bootstrap_url(spec) + ROUTE)
        try:
            async with asyncio.timeout(ASK_S):
                response = await http.get(url)
            rank = msgspec.json.decode(response.content, type=_Rank) if response.is_success else None
        except TimeoutError:
            raise NotApplied(f"{server.id}: its bootstrap server does not answer") from None
        except TRANSPORT_ERRORS as error:
            raise NotApplied(f"{server.id}: its bootstrap server cannot be asked ({describe(error)[0]})") from None
        except msgspec.DecodeError:
            raise NotApplied(f"{server.id}: its bootstrap server does not say where the rank listens") from None
        if rank is None:
            raise NotApplied(f"{server.id}: its bootstrap server answers {response.status_code}")
        return _Socket(rank.rank_ip, int(rank.rank_port))


class ForeignFrameFault(FrameFault):
    """A message that means nothing to the engine."""

    def frames(self) -> tuple[bytes, ...]:
        """Two parts of our own."""
        return JUNK


class AbortFrameFault(FrameFault):
    """The message by which decode gives up a room, for a room that nobody knows."""

    def frames(self) -> tuple[bytes, ...]:
        """Tag, room, and where the sender would listen."""
        return (ABORT, str(secrets.randbits(ROOM_BITS)).encode(), *NOBODY)
