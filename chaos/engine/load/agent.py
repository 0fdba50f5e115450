"""One agent: started, spoken to and listened to, until it has ended and it is clear why.

Its process may be on another host (`process.py`); whatever it stamps is told on our own clock (`books.py`).
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.load import messages as msg
from chaos.engine.load.books import Books
from chaos.model.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chaos.engine.hosts import Host
    from chaos.engine.load.config import AgentConfig
    from chaos.engine.load.process import AgentProcess, Killed
    from chaos.engine.owners import Owners
    from chaos.engine.ports import Clock, Emit

HELLO_S = 20.0
"""A Python that has not said hello by then will not (these machines starve for seconds now and then)."""
WAVE_REPLY_S = 10.0
DONE = "done"
"""What it says when its sessions did all their rounds, or as many as waves let them."""
TOLD = ("drained", "stopped")
"""What it says when it ended as we told it to."""


class Agent:
    """The client process of one group."""

    def __init__(
        self,
        config: AgentConfig,
        process: AgentProcess,
        *,
        log: Path,
        emit: Emit,
        clock: Clock,
        owners: Owners | None = None,
        broke: Callable[[int, int], bool] | None = None,
    ) -> None:
        """`broke` tells whether the way that its requests take broke between two moments."""
        self.config = config
        self.group = config.group
        self.waves_done: dict[str, msg.Wave] = {}
        self.own_sockets: frozenset[str] = frozenset()
        """Inodes of those of its sockets that go to no server."""
        self._log = log
        self._books = Books(config.group, emit=emit, clock=clock, owners=owners, broke=broke)
        self._process = process
        self._hello = asyncio.Event()
        self._wave_seen = asyncio.Event()
        self._held: asyncio.Queue[msg.Held] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._expected_end = ""  # why its end is no accident: "fault", "asked", or "forced" when it did not obey
        self._bye = ""  # its own last word on why it ended

    # ------------------------------------------------------------------------------------------ life

    async def run(self) -> None:
        """Start the process and pass on what it says until it ends; cancel-safe: the process never outlives this."""
        try:
            async with aclosing(self._process.lines(msgspec.to_builtins(self.config))) as lines:
                async for line in lines:
                    try:
                        message = msg.decode(line)
                    except (msgspec.DecodeError, RecursionError):
                        continue  # cut by SIGKILL in the middle of a line
                    self._on_message(msg.shifted(message, self._process.offset_ns))
        finally:
            self._account_for_end()
            self._ended.set()

    async def ready(self) -> None:
        """Wait until the agent said hello; raises `HarnessError` when it does not."""
        waiters = [asyncio.ensure_future(event.wait()) for event in (self._hello, self._ended)]
        try:
            await asyncio.wait(waiters, timeout=HELLO_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
        if not self._hello.is_set():
            raise HarnessError(
                f"the load agent of group {self.group} did not start: {self._process.lost or self._log_tail()}",
                hint=f"see {self._log}",
            )

    async def ended(self) -> None:
        """Wait until the process is gone and every request it had is accounted for."""
        await self._ended.wait()

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return bool(self._process.pid) and not self._ended.is_set()

    @property
    def over(self) -> bool:
        """True once the process is gone and accounted for; a process that is being started is not over."""
        return self._ended.is_set()

    @property
    def hangs(self) -> bool:
        """Whether it is not worth waiting for any more."""
        return self._books.silent_long

    @property
    def pid(self) -> int:
        """Its process id, on its host; 0 before it started."""
        return self._process.pid

    @property
    def host(self) -> Host:
        """Where it runs."""
        return self._process.host

    @property
    def open_requests(self) -> int:
        """Requests sent and not yet ended."""
        return len(self._books.open)

    @property
    def open_ports(self) -> list[int]:
        """The local ports, at whoever connects for it, of requests that are open."""
        return [start.local_port for start in self._books.open.values() if start.local_port]

    def census(self) -> dict[str, int] | None:
        """Sessions by phase right now; None when unknown."""
        return self._process.census()

    # ------------------------------------------------------------------------------------------ orders

    async def add_sessions(self, count: int) -> None:
        """Start `count` more sessions now."""
        await self._command({"cmd": "add", "sessions": count})

    async def drain(self) -> None:
        """Ask it to start no further request and to end when the open ones have."""
        self._expected_end = self._expected_end or "asked"
        await self._command({"cmd": "drain"})

    async def stop(self) -> None:
        """Ask it to hang up everything now; each request is reported as ended by the harness."""
        self._expected_end = self._expected_end or "asked"
        await self._command({"cmd": "stop"})

    async def wave(self, wave: str, how: str, sessions: str | int, *, deadline_s: float = 0.0) -> msg.Wave:
        """Have it break sessions' sockets in the given manner; raises `TimeoutError` when it does not answer."""
        self._wave_seen.clear()
        order: dict[str, str | int | float] = {"cmd": "wave", "id": wave, "how": how, "sessions": sessions}
        await self._command(order | ({"deadline_s": deadline_s} if deadline_s else {}))
        async with asyncio.timeout(WAVE_REPLY_S + deadline_s):
            while wave not in self.waves_done:
                await self._wave_seen.wait()
                self._wave_seen.clear()
        return self.waves_done.pop(wave)

    async def look(self, wave: str) -> msg.Held:
        """What the kernel has of the connections that a wave holds; raises `TimeoutError` when nobody answers."""
        return await self._ask_held({"cmd": "look", "id": wave})

    async def release(self, wave: str, *, close: bool) -> msg.Held:
        """Have it let go of what a wave holds; raises `TimeoutError` when nobody answers."""
        return await self._ask_held({"cmd": "release", "id": wave, "close": close})

    def has_open(self, rid: str) -> bool:
        """Whether the request that a server knows by this id has not ended."""
        return rid.removeprefix(f"{self.config.run}-") in self._books.open

    async def sigkill(self) -> Killed | None:
        """Kill the process as a fault: the kernel closes its sockets. None when it was gone already."""
        return await self._kill("fault")

    async def force(self) -> None:
        """Kill the process since it does not end as it was told: that is our own doing, and no fault."""
        await self._kill("forced")

    @property
    def returncode(self) -> int | None:
        """Exit status once it has ended (negative: the signal)."""
        return self._process.returncode

    # ------------------------------------------------------------------------------------------ inside

    async def _kill(self, why: str) -> Killed | None:
        self._expected_end = self._expected_end if self.over else why
        return await self._process.kill()

    async def _ask_held(self, command: dict[str, str | int | float]) -> msg.Held:
        while not self._held.empty():
            self._held.get_nowait()  # the answer to somebody who did not wait for it
        await self._command(command)
        async with asyncio.timeout(WAVE_REPLY_S):
            return await self._held.get()

    async def _command(self, command: dict[str, str | int | float]) -> None:
        await self._process.say(msgspec.json.encode(command))

    def _on_message(self, message: msg.Message) -> None:
        match message:
            case msg.Hello():
                self.own_sockets = frozenset(message.sockets)
                self._books.heard_ns = message.t
                self._hello.set()
            case msg.Start():
                self._books.started(message)
            case msg.End():
                self._books.ended(message)
            case msg.Wave():
                self.waves_done[message.id] = message
                self._wave_seen.set()
            case msg.Held():
                self._held.put_nowait(message)
            case msg.Beat():
                self._books.fares(message)
            case msg.Declined():
                self._books.lost(f"the agent declined {message.command}: {message.detail}")
            case msg.Bye():
                self._bye = message.reason

    def _account_for_end(self) -> None:
        """Account for requests that the process took with it: by our fault, or by an accident that is ours, too."""
        lost = self._process.lost
        self._books.end_all(
            error="way" if lost else "cancelled",
            detail="the connection to its client was lost" if lost else "the client process ended",
            by="fault" if self._expected_end == "fault" and not lost else "harness",
        )
        if lost:
            self._books.lost(f"the connection to the agent's host was lost: {lost}")
        elif self._bye:
            self._judge_goodbye()
        elif self._expected_end == "forced":
            self._books.lost("the agent did not end when it was told to, and was killed", from_ns=self._books.heard_ns)
        elif not self._books.tell_silence() and self._expected_end != "fault":
            self._books.lost(f"the agent ended with {self._process.returncode}: {self._log_tail()}")

    def _judge_goodbye(self) -> None:
        """It ended by itself: properly when its sessions were done, or because we told it to."""
        if self._process.returncode:
            self._books.lost(f"the agent ended with {self._process.returncode}: {self._log_tail()}")
        elif self._bye != DONE and not (self._expected_end and self._bye in TOLD):
            self._books.lost(
                f"the agent ended before its sessions were done, and not because we told it to: {self._bye}"
            )

    def _log_tail(self) -> str:
        try:
            return self._log.read_text(errors="replace").strip()[-300:] or "it said nothing"
        except OSError:
            return "its log cannot be read"
