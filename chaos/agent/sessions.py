"""The load: sessions that run rounds with growing context (closed loop), or arrive at a rate (open loop).

A session ends after its last round, when the load drains, or when a wave hits it: a killed agent does not come back.
"""

from __future__ import annotations

import asyncio
import traceback
from time import monotonic_ns
from typing import TYPE_CHECKING, Callable, Protocol

from .client import Call
from .codeword import check
from .phases import CONNECTING, DONE, NONE, STREAMING, THINKING, WAITING
from .prompts import Conversation
from .report import ended_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .client import Ended, Tools
    from .phases import PhaseFile
    from .report import Report

AFTER_FAILURE_S = 0.5  # a server that refuses everything is not to be hammered
AFTER_LOST_WAY_S = 3.0  # nothing can be sent before it is back, which is told of once, not by every session


class Clock(Protocol):
    """Monotonic time; tests pass one that jumps."""

    def now_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Sleep."""


class LoopClock:
    """The real clock."""

    def now_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        """Sleep in the event loop."""
        await asyncio.sleep(seconds)


async def arrivals(clock: Clock, rate_per_s: float, start_ns: int, arrive: Callable[[int], None]) -> None:
    """Call `arrive(due_ns)` at `start_ns + i / rate_per_s` for i = 0, 1, ... until cancelled.

    The deadlines are absolute: a late wake-up is made up for at once and never shifts or drops what comes after it.
    """
    count = 0
    while True:
        due_ns = start_ns + round(count * 1e9 / rate_per_s)
        late_ns = clock.now_ns() - due_ns
        if late_ns < 0:
            await clock.sleep(-late_ns / 1e9)
            continue
        arrive(due_ns)
        count += 1


class Counters:
    """What the load did so far."""

    def __init__(self) -> None:
        self.intended = 0  # sends that were due
        self.delivered = 0  # sends that were made
        self.tokens = 0  # received by requests that ended
        self.completed = 0
        self.failed = 0


class Session:
    """One simulated agent."""

    def __init__(self, load: Load, number: int, rounds: int, due_ns: int) -> None:
        self.number = number
        self.phase = NONE
        self.killed = False
        self.call: Call | None = None
        self._load = load
        self._rounds = rounds
        self._due_ns = due_ns
        self._slot = -1
        self._round = 0
        self._req = ""
        self._words = 0
        self._intended_ns = due_ns
        self._nap: asyncio.Future[bool] | None = None

    async def run(self) -> None:
        """Run all rounds, or as many as the load and the waves allow."""
        load = self._load
        try:
            if not await self._pause_until(self._due_ns):
                return
            self._slot = load.phases.slot(self.number - load.config.first_session)
            talk = Conversation(load.config, self.number)
            for round_ in range(self._rounds):
                self._round = round_
                self._intended_ns = self._due_ns
                self._req = f"{load.config.group}-s{self.number:07d}-r{round_:05d}"
                # Of a fixed width, because engines abort whatever begins with what they are given (sglang#35936).
                body = talk.ask(round_, f"{load.config.run}-{self._req}" if load.config.rid else "")
                ended, content = await self._request(body, talk)
                if round_ + 1 == self._rounds or not self._goes_on():
                    return
                if ended.error or content == "corrupted":  # what is somebody else's does not go into the context
                    talk.failed()
                    rest_s = max(AFTER_LOST_WAY_S if ended.error == "way" else AFTER_FAILURE_S, load.config.think_s)
                else:
                    talk.answered(ended.text)
                    rest_s = load.config.think_s
                self._due_ns = monotonic_ns() + round(rest_s * 1e9)
                if not await self._pause_until(self._due_ns):
                    return
        finally:
            if self.phase != NONE:
                self._move(DONE)

    def kill(self) -> None:
        """End the session after its request, which is hung up separately."""
        self.killed = True
        self.wake()

    def wake(self) -> None:
        """Look now whether to go on."""
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(False)

    def on_sent(self, sent_ns: int | None, local_port: int | None) -> None:
        """Report that the request left, or (None) that it could not."""
        if sent_ns is not None:
            self._load.counters.delivered += 1
            self._move(WAITING)
        fields = self._identity()
        fields.update(intended=self._intended_ns, sent=sent_ns, local_port=local_port, api=self._load.config.api)
        fields["words"] = self._words
        self._load.report.emit("start", fields)

    def on_first(self) -> None:
        """Note that tokens flow."""
        self._move(STREAMING)

    async def _request(self, body: bytes, talk: Conversation) -> tuple[Ended, str]:
        load = self._load
        self._move(CONNECTING)
        load.counters.intended += 1
        another = self._round + 1 < self._rounds
        self._words = talk.words
        self.call = call = Call(load.tools, self._req, body, self, keep_text=another or bool(talk.owner))
        try:
            ended = await call.run()
        finally:
            self.call = None
        if ended.sent_ns is None:
            self.on_sent(None, None)
        load.counters.tokens += len(ended.stamps)
        if ended.error:
            load.counters.failed += 1
        else:
            load.counters.completed += 1
        content, whose = self._content(ended, talk)
        fields = {**self._identity(), **ended_fields(ended), "content": content, "whose": whose}
        load.report.emit("end", fields)
        return ended, content

    def _content(self, ended: Ended, talk: Conversation) -> tuple[str, str]:
        """What the answer holds of codewords. One that failed cannot lack anything, but may hold somebody else's."""
        if not talk.owner:
            return "unchecked", ""
        content, whose = check(self._load.config.run, talk.owner, ended.text, ours=talk.ours)
        return ("unchecked" if ended.error and content != "corrupted" else content), whose

    def _identity(self) -> dict[str, object]:
        return {"req": self._req, "session": self.number, "round": self._round, "path": self._load.config.path}

    def _goes_on(self) -> bool:
        return not self.killed and not self._load.draining

    async def _pause_until(self, due_ns: int) -> bool:
        """Wait; False when the session is to end instead of going on."""
        if self.phase != NONE:
            self._move(THINKING)
        loop = asyncio.get_running_loop()
        while self._goes_on() and (rest_ns := due_ns - monotonic_ns()) > 0:  # again: uvloop rounds to milliseconds
            self._nap = nap = loop.create_future()
            timer = loop.call_later(rest_ns / 1e9, _rise, nap)
            try:
                await nap
            finally:
                timer.cancel()
                self._nap = None
        return self._goes_on()

    def _move(self, phase: int) -> None:
        if phase != self.phase:
            self._load.phases.move(self._slot, self.phase, phase)
            self.phase = phase


def _rise(nap: asyncio.Future[bool]) -> None:
    if not nap.done():
        nap.set_result(True)


class Load:
    """All sessions of this process. `finished` is done when none is left and none will come."""

    def __init__(self, tools: Tools, phases: PhaseFile, report: Report, clock: Clock | None = None) -> None:
        self.config = tools.config
        self.tools = tools
        self.phases = phases
        self.report = report
        self.counters = Counters()
        self.defects = 0  # sessions that ended by an exception of ours
        self.draining = False
        self.live: dict[int, Session] = {}
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = clock or LoopClock()
        self._next = self.config.first_session
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin: the ramp of the closed loop, or the arrivals of the open loop."""
        config, start_ns = self.config, self._clock.now_ns()
        if config.rate_per_s is not None:
            self._arrivals = asyncio.ensure_future(
                arrivals(self._clock, config.rate_per_s, start_ns, lambda due_ns: self._begin(1, due_ns))
            )
            self._tasks.add(self._arrivals)
            self._arrivals.add_done_callback(self._gone)
            return
        for index in range(config.sessions):
            self._begin(config.rounds, start_ns + round(config.ramp_s * 1e9 * index / config.sessions))
        self._settle()

    def add(self, sessions: int) -> None:
        """Add sessions that start now."""
        if self.draining:
            return
        rounds = self.config.rounds if self.config.rate_per_s is None else 1
        for _ in range(sessions):
            self._begin(rounds, self._clock.now_ns())

    def drain(self) -> None:
        """Start no further request and wait for those in flight, however long they take: never hang up."""
        self.draining = True
        if self._arrivals is not None:
            self._arrivals.cancel()
        for session in self.live.values():
            if session.call is not None:
                session.call.suspend_timeout()
            session.wake()
        self._settle()

    def stop(self, detail: str) -> None:
        """Hang up everything now."""
        self.drain()
        for session in self.live.values():
            if session.call is not None:
                session.call.hang_up("cancel", "cancelled", "harness", detail)

    def tokens(self) -> int:
        """Tokens received so far, those of requests in flight included."""
        open_calls = [session.call for session in self.live.values() if session.call is not None]
        return self.counters.tokens + sum(len(call.answer.stamps) for call in open_calls)

    def _begin(self, rounds: int, due_ns: int) -> None:
        session = Session(self, self._next, rounds, due_ns)
        self._next += 1
        self.live[session.number] = session
        task = asyncio.ensure_future(session.run())
        self._tasks.add(task)

        def gone(task: asyncio.Task[None]) -> None:
            del self.live[session.number]
            self._gone(task)

        task.add_done_callback(gone)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # The others go on: ending the process now would hang up all of them.
            self.defects += 1
            traceback.print_exception(type(error), error, error.__traceback__)
        self._settle()

    def _settle(self) -> None:
        if not self._tasks and not self.finished.done():
            self.finished.set_result(None)
