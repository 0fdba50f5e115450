"""Bugs in what becomes of a request whose client has left."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from chaos.lab.sim import kv
from chaos.lab.sim.builds.build import Build
from chaos.lab.sim.control import ControlLoop
from chaos.lab.sim.decode_scheduler import DecodeScheduler
from chaos.lab.sim.frontend import Frontend
from chaos.lab.sim.prefill_scheduler import PrefillScheduler
from chaos.lab.sim.rooms import ABORTED_BY_REQUEST, KVPoll
from chaos.lab.sim.scheduler import ABORTED_RUNNING
from chaos.lab.sim.transfer import TransferWorkers, TransportError

if TYPE_CHECKING:
    from chaos.lab.sim.control import TransferInfo
    from chaos.lab.sim.decode_request import DecodeReq
    from chaos.lab.sim.request import Req
    from chaos.lab.sim.scheduler import Parts
    from chaos.lab.sim.transfer import Links


class AbortUnhandled(ControlLoop):
    """ABORT is a frame like any other, so it lacks the guard and ends the thread."""

    def on_abort(self, frames: list[bytes]) -> None:
        """Nobody thought of it."""
        self.on_guarded(frames)


class StuckTransferring(DecodeScheduler):
    """A receiver that is aborted once its KV was asked for stays in Transferring, which no timeout looks at."""

    def give_up(self, item: DecodeReq, reason: str) -> None:
        """Prefill is told and sends nothing any more; the done signal that would end the state never comes."""
        if reason == ABORTED_BY_REQUEST and item.poll is KVPoll.WAITING_FOR_INPUT:
            item.poll = KVPoll.TRANSFERRING
            self.notify_abort(item)
        else:
            super().give_up(item, reason)


class HeldUntilTimeout(DecodeScheduler):
    """What is aborted keeps its place, in the queue or with its slot, until the waiting timeout ends it."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._held: dict[int, tuple[DecodeReq, float]] = {}  # by room, and since when

    def give_up(self, item: DecodeReq, reason: str) -> None:
        """Nothing happens for now; should KV come after all, the first step ends the request."""
        if reason == ABORTED_BY_REQUEST:
            item.req.to_finish = ABORTED_RUNNING
            self._held.setdefault(item.room, (item, time.monotonic()))
        else:
            super().give_up(item, reason)

    def notify_abort(self, item: DecodeReq) -> None:
        """Neither side tells the other (before 0.5.13)."""

    def on_tick(self) -> None:
        """The timeout that ends every room that nobody sends KV for ends these, too."""
        super().on_tick()
        for item, since in list(self._held.values()):
            elapsed = time.monotonic() - since
            if elapsed > self.clocks.waiting_timeout_s:
                del self._held[item.room]
                item.fail(f"Request {item.room} timed out after {elapsed:.1f}s in KVPoll.WaitingForInput")
                self.wake()


class PagesFreedInFlight(DecodeScheduler):
    """The pages of an aborted room are given to the next request while the transfer into them is still under way."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._freed: set[int] = set()  # rooms given up while their KV was on its way

    def give_up(self, item: DecodeReq, reason: str) -> None:
        """Its pages are free at once."""
        if item.poll is KVPoll.WAITING_FOR_INPUT:
            self._freed.add(item.room)
        super().give_up(item, reason)

    def on_kv(self, room: int, received: bytes) -> None:
        """A late write lands in pages that the latest of the running requests has grown into and reads from now on."""
        if room not in self._freed:
            super().on_kv(room, received)
            return
        self._freed.discard(room)
        if self.running:
            victim = self.running[-1]
            victim.continuation = kv.Continuation.of(received, begins_at=victim.generated)


class NeverCancelled(TransferWorkers):
    """A transfer that was posted is carried out, whatever becomes of its room meanwhile."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self._posted: dict[int, TransferInfo] = {}

    def enqueue(self, room: int, kv: bytes) -> None:
        """The destination is fixed now."""
        self._posted[room] = self.manager.transfer_infos[room]
        super().enqueue(room, kv)

    async def transfer(self, room: int, kv: bytes, links: Links) -> None:
        """Send, also when the room has failed or was cleared."""
        info = self._posted.pop(room)
        if self.manager.rooms.known(room) and self.manager.rooms.poll(room) is not KVPoll.FAILED:
            await super().transfer(room, kv, links)
        else:
            with suppress(OSError, EOFError, TransportError):
                await self.deliver(info, room, kv, links)


class StatePopped(Frontend):
    """The state of a request is dropped when its client leaves, so the abort that is sent 2 s later finds nothing."""

    def abort_later(self, req: Req) -> None:
        """Too early."""
        self.requests.pop(req.rid, None)
        super().abort_later(req)


class LeakingPrefill(PrefillScheduler):
    """What an abort hits in the middle of its forward pass never gives its KV back."""

    def abort(self, rid: str, *, abort_all: bool) -> None:
        """The result of the chunk that is under way comes after the cleanup."""
        for req in self.forwarding:
            if not req.fake and (abort_all or req.rid.startswith(rid)):
                self.pool.lose(req.rid)
        super().abort(rid, abort_all=abort_all)


BUILDS = (
    Build(
        name="nixl-abort-unhandled",
        about="the first ABORT from decode ends the prefill's control thread; no later request ever bootstraps",
        version="0.5.14",
        upstream="sgl-project/sglang PR #30352 (ABORT introduced by #27372)",
        fixed_in="0.5.16",
        control=AbortUnhandled,
        prefill_reports_running=False,
    ),
    Build(
        name="decode-slot-leak",
        about="aborted rooms stick in Transferring and hold their decode slots: capacity shrinks with each wave",
        version="0.5.16",
        upstream="sgl-project/sglang PR #31800",
        decode=StuckTransferring,
    ),
    Build(
        name="abort-storm-300s",
        about="aborted rooms keep their decode slots until the waiting timeout (300 s), then all heal at once",
        version="0.5.12.post1",
        upstream="sgl-project/sglang PR #28651, #29017",
        decode=HeldUntilTimeout,
        prefill_reports_running=False,
    ),
    Build(
        name="zombie-decode",
        about="decode goes on generating for streams whose clients have left, to the end of max_tokens",
        version="0.5.16",
        upstream="sgl-project/sglang PR #34894, #35936",
        frontend=StatePopped,
    ),
    Build(
        name="wrong-tokens-after-abort",
        about="KV pages of an aborted room are used again while its transfer is in flight: another session's text",
        version="0.5.16",
        upstream="sgl-project/sglang #27372, #32564, #35049, #38961",
        decode=PagesFreedInFlight,
        transfer=NeverCancelled,
    ),
    Build(
        name="idle-self-kill",
        about="an abort during a forward pass leaks KV; the check of the idle server finds it and ends the server",
        version="0.5.16",
        upstream="sgl-project/sglang PR #36926",
        prefill=LeakingPrefill,
    ),
)
