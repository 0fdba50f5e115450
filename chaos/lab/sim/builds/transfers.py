"""Bugs of KV on its way from prefill to decode: transfers that fail once, that never end, or that never begin."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import zmq

from chaos.lab.sim.builds.build import Build
from chaos.lab.sim.control import PrefillManager
from chaos.lab.sim.decode_scheduler import DecodeScheduler
from chaos.lab.sim.kv import BYTES_PER_TOKEN
from chaos.lab.sim.peers import Peers
from chaos.lab.sim.rooms import KVPoll
from chaos.lab.sim.transfer import TransferWorkers, TransportError

if TYPE_CHECKING:
    from chaos.lab.sim.control import TransferInfo
    from chaos.lab.sim.decode_request import DecodeReq
    from chaos.lab.sim.transfer import Links

BLOCK = 16  # tokens of a KV block, the least that is ever stored
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
)
