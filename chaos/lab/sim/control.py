"""The prefill's control socket: one ZMQ PULL socket per rank, read by one thread in a bare loop.

Frames (sglang 0.5.14, disaggregation/nixl/conn.py): a peer registers with
`[b"NixlMsgGuard", b"None", ip, port, agent, metadata, ...]`, announces where a room's KV goes with
`[b"NixlMsgGuard", room, ip, port, agent, kv_indices, aux_index, required, state_indices, prefix_len]`, and gives a room
up with `[b"ABORT", room, ip, port]`. There is no acknowledgement, and nobody watches the thread: when an exception ends
it, the process goes on, and the only trace is what `threading.excepthook` prints on stderr.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq

from chaos.lab.sim.config import LOOPBACK
from chaos.lab.sim.rooms import ABORTED_BY_DECODE, KVPoll, Rooms

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

GUARD = b"NixlMsgGuard"
ABORT_TAG = b"ABORT"
NO_ROOM = b"None"


@dataclass(frozen=True, slots=True)
class Peer:
    """A decode rank as it registered. `kv_port` is where it takes KV bytes."""

    agent: str
    host: str
    port: int
    kv_port: int


@dataclass(frozen=True, slots=True)
class TransferInfo:
    """Where the KV of one room goes."""

    room: int
    agent: str
    host: str
    port: int


class PrefillManager:
    """Rooms, peers and transfer infos of a prefill rank; touched by the event loop only.

    The first tensor-parallel rank leads: what its scheduler does with a room is done on its `followers`, too, and a
    room is as far as the last of them (the engine reduces polls by MIN).
    """

    def __init__(self, followers: Sequence[PrefillManager] = ()) -> None:
        self.followers = tuple(followers)
        self.rooms = Rooms()
        self.peers: dict[str, Peer] = {}
        self.transfer_infos: dict[int, TransferInfo] = {}
        self.wake: Callable[[], None] = lambda: None  # set by the scheduler

    def on_register(self, peer: Peer) -> None:
        """A decode rank introduced itself."""
        self.peers[peer.agent] = peer

    def on_transfer_info(self, info: TransferInfo) -> None:
        """A room's destination is known; the room may be known before its request is."""
        self.transfer_infos[info.room] = info
        self.rooms.move(info.room, KVPoll.WAITING_FOR_INPUT)
        self.wake()

    def on_abort_notice(self, room: int) -> None:
        """Decode gave a room up; a completed or unknown room is left alone (0.5.16, `_handle_abort_notification`)."""
        if self.rooms.poll(room) is not KVPoll.SUCCESS and self.rooms.fail(room, ABORTED_BY_DECODE):
            self.wake()

    # ------------------------------------------------------------------ for all ranks at once

    def begin(self, room: int) -> None:
        """A request for the room has come."""
        for each in (self, *self.followers):
            each.rooms.move(room, KVPoll.BOOTSTRAPPING)

    def poll(self, room: int) -> KVPoll:
        """How far all ranks are; only the first one sends KV, so of the others only the start and failure matter."""
        others = [each.rooms.poll(room) for each in self.followers]
        held = [poll for poll in others if poll in (KVPoll.FAILED, KVPoll.BOOTSTRAPPING)]
        return min([self.rooms.poll(room), *held])

    def give_up(self, room: int, reason: str) -> None:
        """Fail the room."""
        for each in (self, *self.followers):
            each.rooms.fail(room, reason)

    def reason(self, room: int) -> str:
        """Why the room failed, in the words of the first rank that knows."""
        reasons = (each.rooms.reason(room) for each in (self, *self.followers))
        return next(filter(None, reasons), "")

    def forget(self, room: int) -> None:
        """Clear a concluded room."""
        for each in (self, *self.followers):
            each.rooms.forget(room)
            each.transfer_infos.pop(room, None)


class ControlLoop:
    """Reads control frames as sglang 0.5.16 does: ABORT is handled, any other frame without the guard is fatal."""

    def __init__(
        self,
        manager: PrefillManager,
        loop: asyncio.AbstractEventLoop,
        *,
        dp: int = 0,
        tp: int = 0,
        address: str = LOOPBACK,
    ) -> None:
        self.manager = manager
        self.loop = loop
        self.dp = dp
        self.tp = tp
        self.address = address
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
        self.port: int = self.socket.bind_to_random_port(f"tcp://{address}")

    def start(self) -> None:
        """Start the thread; its name and its end are Python's own."""
        threading.Thread(target=self.bootstrap_thread, daemon=True).start()

    def bootstrap_thread(self) -> None:
        """Read for ever; nothing is caught here, as in the engine."""
        while True:
            self.handle(self.socket.recv_multipart())

    def handle(self, frames: list[bytes]) -> None:
        """Act on one message."""
        if frames[0] == ABORT_TAG:
            self.on_abort(frames)
        else:
            self.on_guarded(frames)

    def on_abort(self, frames: list[bytes]) -> None:
        """An abort notice; a seam for builds that treat it in another way."""
        self.loop.call_soon_threadsafe(self.manager.on_abort_notice, int(frames[1]))

    def on_guarded(self, frames: list[bytes]) -> None:
        """A registration or a transfer info; anything without the guard ends the thread."""
        # an assert in the engine, too (nixl/conn.py), and still there in 0.5.23
        assert frames[0] == GUARD, f"First message should be {GUARD!r}. Foreign traffic?"  # noqa: S101
        if frames[1] == NO_ROOM:
            agent, metadata = frames[4].decode(), frames[5].decode()
            peer = Peer(agent, frames[2].decode(), int(frames[3]), int(metadata.rpartition(":")[2]))
            self.loop.call_soon_threadsafe(self.manager.on_register, peer)
        else:
            info = TransferInfo(int(frames[1]), frames[4].decode(), frames[2].decode(), int(frames[3]))
            self.loop.call_soon_threadsafe(self.manager.on_transfer_info, info)
