"""Another machine as a host: its outpost is spoken to over SSH, watched, and started again when it is lost."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from chaos.engine.hosts.clock import HostClock, Ping, measured
from chaos.engine.hosts.connect import Attempt, connect, hang_up
from chaos.engine.hosts.host import PATIENCE_S, HostLost, HostTrouble
from chaos.engine.hosts.line import Line, Said
from chaos.engine.hosts.start import start
from chaos.model.errors import UserError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    import paramiko

    from chaos.engine.hosts.connect import Ways
    from chaos.engine.hosts.place import Place
    from chaos.engine.hosts.start import Started

PING_S = 5.0
SILENT_S = 15.0
"""Whoever said nothing for so long, though asked thrice, is lost."""
CLOCK_S = 60.0
PINGS_AT_FIRST = 8
PINGS_LATER = 5
PING_PATIENCE_S = 5.0
BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
TOLD_EVERY_S = 60.0
"""How often an outage that goes on is told of: enough for a run that is killed meanwhile."""
SESSIONS = 8
"""Of the ten that an sshd allows a connection by default."""
NOT_CONNECTED = "its host is not connected"
STOPPING_S = 2.0
FINISH_S = 2.0


class Watcher(Protocol):
    """Who is told, in threads of the host's, what became of it. Nothing of this names a host."""

    def outage(self, from_ns: int, to_ns: int, cause: str) -> None:
        """Nothing was seen of it between two moments of our clock; a longer outage is told in pieces."""

    def jump(self, from_ns: int, to_ns: int, cause: str) -> None:
        """Its clock and ours have parted between two moments of ours."""

    def clock(self, clock: HostClock) -> None:
        """How its clock stands to ours."""


class Remote:
    """A host that is reached over SSH."""

    remote = True

    def __init__(
        self, place: Place, ways: Ways, *, run: str = "", progress: Callable[[str], None] = lambda _line: None
    ) -> None:
        self.place = place
        self.label = place.label
        self.watcher: Watcher | None = None
        self._progress = progress
        self._unseen_ns = 0  # while it is lost: since when nobody was told what became of it
        self._ways = ways
        self._run = run
        self._attempt = Attempt()
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._line: Line | None = None
        self._transport: paramiko.Transport | None = None
        self._clock: HostClock | None = None
        self._keeper = threading.Thread(target=self._keep, name=f"ssh-keep {self.label}", daemon=True)

    def open(self) -> None:
        """Connect for the first time; blocks. Raises UserError with what is wrong and how to mend it."""
        self._connect()
        self._keeper.start()

    # ------------------------------------------------------------------------------------------ a host

    @property
    def offset_ns(self) -> int:
        """What to add to its CLOCK_MONOTONIC to get ours."""
        return self.clock.offset_ns

    @property
    def clock(self) -> HostClock:
        """How its clocks stand to ours."""
        assert self._clock is not None  # noqa: S101 - measured before anybody gets hold of it
        return self._clock

    @property
    def hello(self) -> dict[str, Any]:
        """What its outpost said of itself: `python`, `uid`, `pid`."""
        return self._line.hello if self._line else {}

    @property
    def up(self) -> bool:
        """Whether it can be spoken to, as far as we know."""
        return self._line is not None and not self._line.lost

    async def call(self, op: str, /, *, timeout_s: float = PATIENCE_S, **args: Any) -> Any:
        """Carry out an operation. Raises HostTrouble or HostLost."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Said] = loop.create_future()

        def settle(said: Said) -> None:
            if not answered.done():
                answered.set_result(said)

        number = self._ask({"op": op, "args": args}, lambda said: _in_loop(loop, settle, said))
        try:
            async with asyncio.timeout(timeout_s):
                return self._value(await answered)
        except TimeoutError:
            raise self._late(op, timeout_s) from None
        finally:
            self._forget(number)

    def call_now(self, op: str, /, *, timeout_s: float = PATIENCE_S, **args: Any) -> Any:
        """As `call`, for whoever has no event loop; blocks."""
        answers: queue.SimpleQueue[Said] = queue.SimpleQueue()
        number = self._ask({"op": op, "args": args}, answers.put)
        try:
            return self._value(answers.get(timeout=timeout_s))
        except queue.Empty:
            raise self._late(op, timeout_s) from None
        finally:
            self._forget(number)

    async def stream(self, name: str, /, **args: Any) -> AsyncGenerator[Any, None]:
        """What a stream sends; closing the generator ends it on the host. Raises HostTrouble or HostLost."""
        loop, heard = asyncio.get_running_loop(), asyncio.Queue[Said]()
        line = self._current()
        number = line.ask({"stream": name, "args": args}, lambda said: _in_loop(loop, heard.put_nowait, said))
        open_ = True
        try:
            while (said := await heard.get()).what == "d":
                yield said.value
            open_ = False
            if said.what != "end":
                self._value(said)
        finally:
            if open_:
                line.stop(number)
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOPPING_S):
                        while (await heard.get()).what == "d":
                            pass
                line.forget(number)

    def start(self, word: str) -> Started:
        """Start another process of ours there (`relay`), on a session of its own; blocks. Close its channel at the end.

        Raises HostLost while the host is down, HostTrouble when it would not.
        """
        transport = self._transport
        if transport is None or not self.up:
            raise HostLost(NOT_CONNECTED)
        if len(transport._channels.values()) >= SESSIONS:  # type: ignore[attr-defined]  # noqa: SLF001 - it tells nobody
            raise HostTrouble("sessions", f"its host has {SESSIONS} sessions of ours already")
        try:
            return start(transport, self.place, word, self._run)
        except UserError as error:
            why = error.message.removeprefix(f"{self.label}: ")
            if not self.up:
                raise HostLost(why) from None
            raise HostTrouble("not-started", why) from None

    def take_stock(self) -> None:
        """Tell the watcher how its clock stands now, or that it is lost still; blocks."""
        line = self._line
        if line is not None and not line.lost:
            self._compare(line, PINGS_LATER, tell=True)
        elif line is not None:
            self._report(self._unseen_ns or line.heard_ns, line.lost)

    def give_up(self) -> None:
        """Do not go on trying to connect; whoever tries gets an error soon."""
        self._closing.set()
        self._attempt.give_up()

    def close(self) -> None:
        """Let go of it: its outpost ends. Blocks for a few seconds at most; may be called twice."""
        self._closing.set()
        self._wake.set()
        line, self._line = self._line, None
        if line is not None and not line.lost:
            line.finish(FINISH_S)
        self._attempt.give_up()
        if self._transport is not None:
            hang_up(self._transport)
        if line is not None:
            line.close("it was closed")
        if self._keeper.ident is not None:
            self._keeper.join(1.0)

    # ------------------------------------------------------------------------------------------ inside

    def _current(self) -> Line:
        line = self._line
        if line is None:
            raise HostLost(NOT_CONNECTED)
        return line

    def _ask(self, request: dict[str, Any], answer: Callable[[Said], object]) -> tuple[Line, int]:
        line = self._current()
        return line, line.ask(request, answer)

    @staticmethod
    def _forget(asked: tuple[Line, int]) -> None:
        line, number = asked
        line.forget(number)

    @staticmethod
    def _value(said: Said) -> Any:
        if said.what == "trouble":
            raise HostTrouble(said.kind, said.value)
        if said.what == "lost":
            raise HostLost(f"its host is lost: {said.value}")
        return said.value

    @staticmethod
    def _late(op: str, timeout_s: float) -> HostLost:
        return HostLost(f"its host did not answer within {timeout_s:g} s ({op})")

    def _connect(self) -> None:
        transport = connect(self.place, self._ways, self._attempt)
        try:
            line = Line(start(transport, self.place, "outpost", self._run), lambda _why: self._wake.set())
        except BaseException:
            hang_up(transport)
            raise
        try:
            clock = self._measure(line, PINGS_AT_FIRST)
        except HostLost as error:
            hang_up(transport)
            line.close(str(error))
            raise
        self._transport, self._line = transport, line
        self._believe(clock)

    # ------------------------------------------------------------------------------------------ the keeper's

    def _keep(self) -> None:
        """Ask it every few seconds how it is; when it is lost, go on trying until it is back."""
        measured_ns = time.monotonic_ns()
        while (line := self._line) is not None and not self._closing.is_set():
            if not line.lost and time.monotonic_ns() - line.heard_ns > SILENT_S * 1e9:
                line.give_up(f"nothing came from it for {SILENT_S:g} s")
            if line.lost:
                self._come_back(line)
                continue
            due = time.monotonic_ns() - measured_ns > CLOCK_S * 1e9
            if due:
                measured_ns = time.monotonic_ns()
            if self._compare(line, PINGS_LATER if due else 1, tell=due):
                self._wake.wait(PING_S)
            self._wake.clear()

    def _come_back(self, line: Line) -> None:
        """Close what is left of the connection and try for a new one until there is one, or we are closed."""
        if self._closing.is_set():
            return
        self._report(line.heard_ns, line.lost)
        said = f": {line.complaints}" if line.complaints else ""
        self._progress(f"{self.label} is lost ({line.lost}{said}); trying to reach it again")
        if self._transport is not None:
            hang_up(self._transport)
        line.close(line.lost)
        said = ""
        for wait_s in itertools.chain(BACKOFF_S, itertools.repeat(BACKOFF_S[-1])):
            if self._closing.wait(wait_s):
                return
            self._attempt = Attempt()
            if self._closing.is_set():
                return  # whoever closed us may not have seen this attempt
            try:
                self._connect()
            except (UserError, HostLost) as error:
                if time.monotonic_ns() - self._unseen_ns > TOLD_EVERY_S * 1e9:
                    self._report(self._unseen_ns, line.lost)
                if said != str(error):
                    said = str(error)
                    self._progress(said)
            else:
                self._report(self._unseen_ns, line.lost)
                self._unseen_ns = 0
                self._progress(f"{self.label} is back")
                self._tell_clock()
                return

    def _report(self, since_ns: int, cause: str) -> None:
        self._unseen_ns = time.monotonic_ns()
        if self.watcher is not None:
            self.watcher.outage(since_ns, self._unseen_ns, cause)

    def _tell_clock(self) -> None:
        if self.watcher is not None:
            self.watcher.clock(self.clock)

    def _compare(self, line: Line, pings: int, *, tell: bool) -> bool:
        """Compare the clocks; False when it did not answer."""
        try:
            later = self._measure(line, pings)
        except HostLost:
            return False
        if self._believe(later) or tell:
            self._tell_clock()
        return True

    def _believe(self, later: HostClock) -> bool:
        """Take in what was measured; True when that parts from what was believed, which is told."""
        earlier = self._clock
        if earlier is None or earlier.agrees(later):
            self._clock = earlier.better(later) if earlier else later
            return False
        self._clock = later
        jumped_s = (earlier.offset_ns - later.offset_ns) / 1e9
        cause = f"its clock went {jumped_s:+.1f} s against ours: one of the machines slept, or was started anew"
        self._progress(f"{self.label}: {cause}")
        if self.watcher is not None:
            self.watcher.jump(earlier.at_ns, later.at_ns, cause)
        return True

    def _measure(self, line: Line, pings: int) -> HostClock:
        """Ask for its clock several times, one after another. Raises HostLost."""
        taken = []
        for _ in range(pings):
            answers: queue.SimpleQueue[Said] = queue.SimpleQueue()
            sent_ns = time.monotonic_ns()
            number = line.ask({"op": "now"}, answers.put)
            try:
                said = answers.get(timeout=PING_PATIENCE_S)
            except queue.Empty:
                line.forget(number)
                raise self._late("now", PING_PATIENCE_S) from None
            taken.append(Ping(sent_ns, self._value(said), said.read_ns))
        return measured(taken)


def _in_loop(loop: asyncio.AbstractEventLoop, act: Callable[[Said], object], said: Said) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(act, said)
