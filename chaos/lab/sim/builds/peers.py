"""Bugs of a node whose peer died, froze or came back, and of a router whose worker did."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import zmq

from chaos.lab.sim.builds.build import Build
from chaos.lab.sim.decode_scheduler import DecodeScheduler
from chaos.lab.sim.peers import Peers
from chaos.lab.sim.prefill_scheduler import PrefillScheduler
from chaos.lab.sim.scheduler import Scheduler
from chaos.lab.sim.workers import UNHEALTHY_AFTER, Workers

if TYPE_CHECKING:
    from chaos.lab.sim.decode_request import DecodeReq
    from chaos.lab.sim.peers import PrefillPeer
    from chaos.lab.sim.scheduler import Parts
    from chaos.lab.sim.workers import Worker

LEASE_S = 10.0  # of the engine's time


class NoSendTimeout(Peers):
    """A PUSH to a prefill that is gone blocks the scheduler's thread, and the lock that the heartbeat needs."""

    blocked = False

    def set_options(self, socket: zmq.Socket[bytes]) -> None:
        """A connection that broke is not made again, so the socket has nobody to send to; and no SNDTIMEO."""
        socket.setsockopt(zmq.RECONNECT_IVL, -1)

    def send(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        """Send, or block for good."""
        try:
            socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            self.blocked = True
            self.events.halt()
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._block, args=(loop, socket, frames), daemon=True).start()

    def _block(self, loop: asyncio.AbstractEventLoop, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        socket.send_multipart(frames)
        loop.call_soon_threadsafe(self._unblocked)

    def _unblocked(self) -> None:
        self.blocked = False
        self.events.go()

    def drop(self, peer: PrefillPeer) -> None:
        """The heartbeat never gets this far while the lock is held."""
        if not self.blocked:
            super().drop(peer)


class StalePeers(Peers):
    """What is known of a prefill outlives it: its successor is sent frames to its predecessor's port."""

    def drop(self, peer: PrefillPeer) -> None:
        """Its rooms fail, its address stays."""
        peer.missed = 0
        self.events.on_peer_lost(peer)


class EndpointReused(DecodeScheduler):
    """The transport's endpoint of a prefill that was replaced is used again while it is being torn down."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._known: dict[str, set[str]] = {}  # where a prefill's ranks were first found, by its address
        self._replaced: set[str] = set()

    def on_peer_ready(self, peer: PrefillPeer) -> None:
        """Another process behind the same address has other sockets; one that was only away has the old ones."""
        found = {socket.getsockopt_string(zmq.LAST_ENDPOINT) for socket in peer.sockets.values()}
        if self._known.setdefault(peer.addr, found) != found:
            self._replaced.add(peer.addr)
        super().on_peer_ready(peer)

    def ask_for_kv(self, item: DecodeReq) -> None:
        """The first request for KV of the new one reads memory that was freed."""
        if item.peer is not None and item.peer.addr in self._replaced:
            self.rank.group.segfault()
        super().ask_for_kv(item)


class LeaseLost(Scheduler):
    """A scheduler that was away for longer than its lease finds itself written off, and turns no more."""

    def on_continued(self, away_s: float) -> None:
        """Nothing takes it up again."""
        if away_s > LEASE_S * self.settings.time_scale:
            self.halt()


class LeaseLostPrefill(LeaseLost, PrefillScheduler):
    """On prefill."""


class LeaseLostDecode(LeaseLost, DecodeScheduler):
    """On decode."""


class FailedIsFinal(Workers):
    """A worker that failed often enough is given up: nobody asks again whether it came back."""

    def result(self, worker: Worker, *, ok: bool) -> None:
        """Three failures in a row are the end of it."""
        super().result(worker, ok=ok)
        if worker.failures >= UNHEALTHY_AFTER and not worker.given_up:
            worker.given_up = True
            self.lost(worker)


BUILDS = (
    Build(
        name="decode-blocked-by-dead-prefill",
        about="decode's PUSH to a prefill that died has no send timeout: decode stands still, also after its return",
        version="0.5.16",
        upstream="sgl-project/sglang PR #31144, #31306, #29570",
        fixed_in="0.5.17",
        peers=NoSendTimeout,
    ),
    Build(
        name="stale-peer",
        about="decode keeps the control address of a prefill that was replaced; only a restart of both sides helps",
        version="0.5.16",
        upstream="sgl-project/sglang #33789",
        peers=StalePeers,
    ),
    Build(
        name="segfault-at-new-prefill",
        about="a prefill was replaced: the first request for KV of the new one ends decode by a segmentation fault",
        version="0.5.16",
        upstream="vllm-project/vllm #49238",
        decode=EndpointReused,
    ),
    Build(
        name="cannot-rejoin",
        about="the router gives a failed worker up for good: restarted, it is healthy and gets nothing",
        version="0.5.16",
        upstream="smg-project/smg #2468",
        workers=FailedIsFinal,
    ),
    Build(
        name="frozen-worker",
        about="frozen for longer than its lease (10 s) a worker never schedules again; it lives (class of bug)",
        version="0.5.16",
        prefill=LeaseLostPrefill,
        decode=LeaseLostDecode,
    ),
)
