"""Bugs of KV on its way from prefill to decode: transfers that fail once, that never end, or that never begin."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import zmq

from chaos.lab.sim.builds.build import Build
from chaos.lab.sim.builds.storm import StormyDecode
from chaos.lab.sim.control import PrefillManager
from chaos.lab.sim.decode_scheduler import DecodeScheduler
from chaos.lab.sim.kv import BYTES_PER_TOKEN
from chaos.lab.sim.peers import Peers
from chaos.lab.sim.rooms import KVPoll
from chaos.lab.sim.transfer import TransferWorkers, TransportError

if TYPE_CHECKING:
    from chaos.lab.sim.control import TransferInfo
    from chaos.lab.sim.decode_request import DecodeReq
    from chaos.lab.sim.scheduler import Parts
    from chaos.lab.sim.transfer import Links

BLOCK = 16  # tokens of a KV block, the least that is ever stored
RING_TOKENS = 2048  # of the buffer in which decode receives KV before it is scattered
ANEW_TIMES = 40  # a prompt takes decode so many times as long as prefill
_FAILED = b"%d" % KVPoll.FAILED


class FailedOnce(TransferWorkers):
    """One send that failed or took longer than 30 s marks a decode's session as dead for the process's lifetime."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self._failed_sessions: set[str] = set()  # by agent: a decode that was started anew is another session

    async def transfer(self, room: int, kv: bytes, links: Links) -> None:
        """As Mooncake: the reason is the room's, and decode is told that its room has failed."""
        rooms = self.manager.rooms
        if rooms.poll(room) is KVPoll.FAILED or not rooms.known(room):
            return
        info = self.manager.transfer_infos[room]
        peer = self.manager.peers[info.agent]
        session = f"{peer.host}:{peer.kv_port}"
        reason = ""
        if info.agent in self._failed_sessions:
            reason = f"Decode instance could be dead, remote mooncake session {session} is not alive"
        else:
            try:
                async with asyncio.timeout(self.least_s + self.clocks.transfer_timeout_s):
                    await self.send(room, kv, links)
            except (OSError, EOFError, TransportError):  # TimeoutError is an OSError
                self._failed_sessions.add(info.agent)
                self.log(f"Session {session} failed.")
                reason = f"Failed to send kv chunk of {room} to {info.host}:{info.port}"
        if reason:
            rooms.fail(room, reason)
            _tell(info)
        self.manager.wake()


def _tell(info: TransferInfo) -> None:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
    socket.connect(f"tcp://{info.host}:{info.port}")
    socket.send_multipart([b"%d" % info.room, _FAILED, b"0"], zmq.NOBLOCK)
    socket.close(linger=1000)  # ms; to a decode that is gone it is for nothing


class HearsOfFailure(DecodeScheduler):
    """Takes what prefill says of a room."""

    def on_failed(self, room: int) -> None:
        """The room is over."""
        for item in self.transfer_queue:
            if item.room == room:
                item.fail("Failed to get kvcache from prefill instance, it might be dead")
        self.wake()


class ReadsStatus(Peers):
    """Mooncake's decode reads the socket that its frames name: status messages of its rooms."""

    events: HearsOfFailure

    async def heartbeat(self) -> None:
        """Read beside it."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._decode_thread, args=(loop,), daemon=True).start()
        await super().heartbeat()

    def _decode_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            room, status, _rank = self.own.recv_multipart()
            if status == _FAILED:
                loop.call_soon_threadsafe(self.events.on_failed, int(room))


class PolledForGood(TransferWorkers):
    """A transfer to a decode that died reports no error: it is polled as under way for good."""

    async def send(self, room: int, kv: bytes, links: Links) -> None:
        """The backend has no timeout for it, and no notice that the peer is gone."""
        with suppress(OSError, EOFError):
            await super().send(room, kv, links)


class PostedIsPosted(PrefillManager):
    """A room whose transfer was posted cannot be given up: its pages stay until the transfer is over."""

    def give_up(self, room: int, reason: str) -> None:
        """Only before."""
        if self.rooms.poll(room) is not KVPoll.TRANSFERRING:
            super().give_up(room, reason)

    def on_abort_notice(self, room: int) -> None:
        """The same for decode's notice."""
        if self.rooms.poll(room) is not KVPoll.TRANSFERRING:
            super().on_abort_notice(room)


class WholeBlocksOnly(TransferWorkers):
    """What is shorter than a block is not stored: prefill is done at once, and decode is never notified."""

    def enqueue(self, room: int, kv: bytes) -> None:
        """Nothing to do."""
        if len(kv) >= BLOCK * BYTES_PER_TOKEN:
            super().enqueue(room, kv)
        else:
            self.manager.rooms.move(room, KVPoll.SUCCESS)
            self.manager.wake()


class WaitsForNotice(DecodeScheduler):
    """A load is over when its notice comes, and never before: no timeout, and an abort waits for it, too."""

    def on_tick(self) -> None:
        """Nothing is timed out."""

    def give_up(self, item: DecodeReq, reason: str) -> None:
        """For a load of nothing no notice will ever come."""
        if item.poll is not KVPoll.WAITING_FOR_INPUT or item.req.prompt_len >= BLOCK:
            super().give_up(item, reason)


class Ring:
    """A staging buffer: taken in order, and given back in order, too, behind a single watermark."""

    def __init__(self) -> None:
        self._taken: deque[tuple[int, int]] = deque()  # room and tokens, oldest first
        self._done: set[int] = set()

    def take(self, room: int, tokens: int) -> bool:
        """Take the next part of it; False when too little is left."""
        if sum(held for _, held in self._taken) + tokens > RING_TOKENS:
            return False
        self._taken.append((room, tokens))
        return True

    def give_back(self, room: int) -> None:
        """The watermark moves up to the oldest part that is still in use."""
        if any(room == taken for taken, _ in self._taken):
            self._done.add(room)
        while self._taken and self._taken[0][0] in self._done:
            self._done.discard(self._taken.popleft()[0])


class PinnedWatermark(DecodeScheduler):
    """A room that ends without its KV is forgotten with its part of the staging ring, which nobody gives back.

    The watermark stays below it for good. What lies above is used up by whoever comes next, and then nothing is staged
    any more. Prefill sends a room's KV once it is told where to.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._ring = Ring()
        self._unstaged: deque[DecodeReq] = deque()

    def ask_for_kv(self, item: DecodeReq) -> None:
        """Once there is room for it; what is larger than all of the ring goes without."""
        if item.req.prompt_len > RING_TOKENS or (
            not self._unstaged and self._ring.take(item.room, item.req.prompt_len)
        ):
            super().ask_for_kv(item)
            return
        item.poll, item.sent_at = KVPoll.WAITING_FOR_INPUT, time.monotonic()
        self.transfer_queue.append(item)
        self._unstaged.append(item)

    async def advance(self) -> None:
        """Stage what fits now, in order."""
        await super().advance()
        while self._unstaged:
            item = self._unstaged[0]
            if item.poll is KVPoll.WAITING_FOR_INPUT:
                if not self._ring.take(item.room, item.req.prompt_len):
                    return
                self.transfer_queue.remove(item)
                super().ask_for_kv(item)
            self._unstaged.popleft()

    def on_kv(self, room: int, received: bytes) -> None:
        """It is scattered, and its part is free; of a room that was forgotten nobody knows the part."""
        if any(item.room == room and item.poll is KVPoll.WAITING_FOR_INPUT for item in self.transfer_queue):
            self._ring.give_back(room)
        super().on_kv(room, received)


class ComputesAnew(StormyDecode):
    """After an abort storm what arrives cannot be loaded; decode computes those prompts itself and says nothing of it.

    It has no time to spare for prompts beside its running batch, so that takes many times as long as on a prefill node.
    """

    _cannot_load = False

    def on_storm(self) -> None:
        """From now on."""
        self._cannot_load = True

    def on_kv(self, room: int, received: bytes) -> None:
        """The room is done once its prompt has been computed here."""
        tokens = next((item.req.prompt_len for item in self.transfer_queue if item.room == room), 0)
        if self._cannot_load and tokens:
            took_s = ANEW_TIMES * tokens / self.settings.prefill_tps
            asyncio.get_running_loop().call_later(took_s, super().on_kv, room, received)
        else:
            super().on_kv(room, received)


BUILDS = (
    Build(
        name="session-blacklist",
        about="a KV transfer that fails or takes over 30 s once marks that decode as dead for prefill's lifetime",
        version="0.5.16",
        upstream="sgl-project/sglang #25287, #35823, #37022",
        transfer=FailedOnce,
        decode=HearsOfFailure,
        peers=ReadsStatus,
    ),
    Build(
        name="stranded-prefill-kv",
        about="prefill keeps the KV of rooms whose decode died in mid-transfer, for good; new rooms are served",
        version="0.5.12.post1",
        upstream="llm-d/llm-d #1709",
        transfer=PolledForGood,
        manager=PostedIsPosted,
        prefill_reports_running=False,
    ),
    Build(
        name="short-prompt-stuck",
        about="a prompt shorter than a KV block (16 tokens) is never sent; decode waits for it for good, with its slot",
        version="0.5.16",
        upstream="LMCache/LMCache #2459 (class of bug)",
        transfer=WholeBlocksOnly,
        decode=WaitsForNotice,
    ),
    Build(
        name="staging-ring-pinned",
        about="an aborted room's part of decode's staging ring is never given back; once the rest is used up, all hang",
        version="0.5.16",
        upstream="sgl-project/sglang PR #31217",
        decode=PinnedWatermark,
    ),
    Build(
        name="recomputes-silently",
        about="after an abort storm decode loads no KV any more and computes every prompt itself: all is served, later",
        version="0.5.16",
        upstream="vllm-project/vllm PR #34896 (class of bug)",
        decode=ComputesAnew,
    ),
)
