"""An agent's process, here or on a host: started, spoken to, counted, killed, and never left behind.

It runs in a session of its own, so a Ctrl-C in the terminal reaches only us, and it reads a pipe of ours, or of the
outpost's: when whoever started it dies, even by SIGKILL, it drains and ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from chaos.engine.hosts import Here, HostLost, HostTrouble
from chaos.engine.load.census import census, of_phases
from chaos.model.errors import HarnessError, UsageError
from chaos.outpost.marks import marked

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from chaos.engine.hosts import Host

LINE_LIMIT = 1 << 20
SAY_S = 10.0
KILL_S = 15.0


@dataclass(frozen=True, slots=True)
class Killed:
    """A process was killed: the census copied just before, and stamps (of our clock) right before and after.

    `connections` and what was `left` of them are counted where that is done in one go with the killing.
    """

    phases: dict[str, int] | None
    ordered_ns: int
    killed_ns: int
    gone_ns: int | None = None
    connections: int | None = None
    left: int | None = None


class AgentProcess(Protocol):
    """The process of one agent. Start it by iterating over `lines`, once."""

    lost: str
    """Why nothing is known of it any more; empty while that is not so."""

    @property
    def host(self) -> Host:
        """Where it runs."""

    @property
    def pid(self) -> int:
        """Its process id there; 0 before it started."""

    @property
    def returncode(self) -> int | None:
        """Exit status once it has ended (negative: the signal)."""

    @property
    def offset_ns(self) -> int:
        """What to add to its stamps to get ours."""

    def lines(self, config: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """What it says, until it has ended; it does not outlive the iteration. Raises HarnessError."""

    async def say(self, line: bytes) -> None:
        """Hand it a line; one that has just ended shows so by its end."""

    def census(self) -> dict[str, int] | None:
        """Sessions by phase; None when unknown."""

    async def kill(self) -> Killed | None:
        """SIGKILL it; None when it had ended."""


class ProcessHere:
    """A process on this machine."""

    offset_ns = 0
    lost = ""

    def __init__(self, *, pyz: Path, log: Path, phase_file: Path, run: str) -> None:
        self._pyz, self._log, self._phase_file, self._run = pyz, log, phase_file, run
        self.host: Host = Here()
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: list[bytes] = []

    @property
    def pid(self) -> int:
        """Its process id; 0 before it started."""
        return self._process.pid if self._process else 0

    @property
    def returncode(self) -> int | None:
        """Exit status once reaped (negative: the signal)."""
        return self._process.returncode if self._process else None

    async def lines(self, config: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Start it and pass on what it says until it ends; cancel-safe."""
        with self._log.open("ab") as log:
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    str(self._pyz),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    limit=LINE_LIMIT,
                    env=marked(self._run),
                )
            except OSError as error:
                raise HarnessError(f"a load agent cannot be started: {error.strerror}") from None
        self._process = process
        assert process.stdout is not None  # noqa: S101
        try:
            waiting, self._waiting = self._waiting, []
            for line in [msgspec.json.encode({**config, "phase_file": str(self._phase_file)}), *waiting]:
                await self.say(line)
            while line := await process.stdout.readline():
                yield line
            await process.wait()
        finally:
            if process.returncode is None:  # one that still runs then has no harness any more
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def say(self, line: bytes) -> None:
        """Hand it a line; while it is being started it obeys right after its first one."""
        if self._process is None or self._process.stdin is None:
            self._waiting.append(line)
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()

    def census(self) -> dict[str, int] | None:
        """Sessions by phase right now."""
        return census(self._phase_file)

    async def kill(self) -> Killed | None:
        """SIGKILL: the kernel closes its sockets."""
        if self._process is None or self._process.returncode is not None:
            return None
        counted = self.census()
        ordered_ns = time.monotonic_ns()
        with contextlib.suppress(ProcessLookupError):  # it has just ended, and has not been waited for yet
            os.kill(self._process.pid, signal.SIGKILL)
        return Killed(counted, ordered_ns, time.monotonic_ns())


class ProcessThere:
    """A process on a host, started and killed by the outpost."""

    def __init__(self, host: Host, *, key: str, run: str, log: Path) -> None:
        self.host, self._key, self._run, self._log = host, key, run, log
        self._counted: dict[str, int] | None = None
        self._waiting: list[bytes] | None = []  # until it runs
        self.pid = 0
        self.returncode: int | None = None
        self.lost = ""

    @property
    def offset_ns(self) -> int:
        """The host's clock against ours."""
        return self.host.offset_ns

    async def lines(self, config: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Start it and pass on what it says until it ends, or the connection to its host does."""
        heard = self.host.stream("agent", key=self._key, run=self._run, config=_portable(config))
        try:
            async with contextlib.aclosing(heard):
                async for told in heard:
                    for line in await self._take(told):
                        yield line.encode()
        except HostTrouble as why:
            raise HarnessError(f"a load agent cannot be started on {self.host.label}: {why}") from None
        except HostLost as why:
            self.lost = str(why)
        finally:
            if self.returncode is None and not self.lost:
                with contextlib.suppress(HostLost, HostTrouble):
                    await self.host.call("agent.kill", key=self._key, timeout_s=KILL_S)

    async def say(self, line: bytes) -> None:
        """Hand it a line."""
        if self._waiting is not None:
            self._waiting.append(line)
            return
        with contextlib.suppress(HostLost, HostTrouble):
            await self.host.call("agent.say", key=self._key, line=line.decode(), timeout_s=SAY_S)

    def census(self) -> dict[str, int] | None:
        """Sessions by phase, as told when that last changed, a twentieth of a second ago at most."""
        return None if self._counted is None else of_phases(self._counted)

    async def kill(self) -> Killed | None:
        """SIGKILL it, census and counting included, in one go on its host."""
        try:
            told = await self.host.call("agent.kill", key=self._key, timeout_s=KILL_S)
        except (HostLost, HostTrouble):
            return None
        by_ns = self.host.offset_ns
        return Killed(
            phases=None if told["phases"] is None else of_phases(told["phases"]),
            ordered_ns=told["ordered_ns"] + by_ns,
            killed_ns=told["killed_ns"] + by_ns,
            gone_ns=told["gone_ns"] + by_ns,
            connections=told["connections"],
            left=told["left"],
        )

    async def _take(self, told: dict[str, Any]) -> list[str]:
        if "lines" in told:
            return list(told["lines"])
        if "count" in told:
            self._counted = told["count"]
        elif "log" in told:
            with self._log.open("a") as log:
                log.write(told["log"])
        elif "exit" in told:
            self.returncode = told["exit"]
        elif "pid" in told:
            self.pid = told["pid"]
            waiting, self._waiting = self._waiting or [], None
            for line in waiting:
                await self.say(line)
        return []


def _portable(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without files of ours: the authority that checks https servers goes along as text."""
    tls = config["tls"]
    if not tls["ca"]:
        return config
    try:
        return {**config, "tls": {**tls, "ca": Path(tls["ca"]).read_text()}}
    except OSError as error:
        raise UsageError(f"cannot read {tls['ca']}: {error.strerror}", hint="see tls.ca") from None
