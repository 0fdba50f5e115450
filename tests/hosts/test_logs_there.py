"""Logs followed over a real sshd: only known lines travel, a cut loses nothing, and no command is left over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from sshd import Sshd, needs_sshd

from chaos.engine.hosts.connect import Ways
from chaos.engine.hosts.place import resolve
from chaos.engine.hosts.remote import Remote
from chaos.engine.ports import SystemClock
from chaos.engine.probes.follow import LogSource, asked
from chaos.engine.probes.logs import LogProbe
from chaos.model.events import EvidenceLost, LogCovered, LogHit
from chaos.model.pack import Samples, Signature
from chaos.model.target import LogFrom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from chaos.model.events import AnyEvent

pytestmark = needs_sshd
T = TypeVar("T")
SOON_S = 60.0
DIED = Signature(
    id="died",
    title="died",
    pattern=r"thread-\d+ died",
    roles=["prefill"],
    samples=Samples(match=["-"]),
    **{"class": "symptom"},
)


class There:
    """A log on a host, followed."""

    def __init__(self, host: Remote, log: LogFrom) -> None:
        (look,) = host.call_now("log.probe", sources=[asked(log)])
        assert "" == look["why"]
        self.events: list[AnyEvent] = []
        source = LogSource(
            node="prefill-0", stream="log", log=log, host=host, signatures=(DIED,), cursors=look["cursors"]
        )
        self.probe = LogProbe([source], emit=self.events.append, clock=SystemClock(), run_id="a1b2c3d4", poll_s=0.01)
        self.host = host

    @property
    def lines(self) -> list[str]:
        return [hit.line for hit in self.of(LogHit)]

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    def cut(self) -> None:
        """As when a network breaks."""
        self.host._transport.sock.shutdown(socket.SHUT_RDWR)


@contextlib.asynccontextmanager
async def following(sshd: Sshd, log: LogFrom) -> AsyncIterator[There]:
    ways = Ways()
    host = Remote(resolve(sshd.ssh()), ways, run="a1b2c3d4")
    try:
        host.open()
        there = There(host, log)
        running = asyncio.create_task(there.probe.run())
        try:
            yield there
        finally:
            running.cancel()
            await asyncio.wait([running])
    finally:
        host.close()
        ways.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110 - other threads and processes set no event of ours
            await asyncio.sleep(0.005)


def write(path: Path, *numbers: int) -> None:
    with path.open("a") as file:
        file.write("".join(f"thread-{n} died\n" for n in numbers))


async def test_a_cut_connection_loses_no_line_also_of_a_file_that_was_rotated_meanwhile(
    sshd: Sshd, tmp_path: Path
) -> None:
    log = tmp_path / "x.log"
    write(log, 0)
    async with following(sshd, LogFrom(file=str(log))) as there:
        write(log, 1)
        await until(lambda: there.lines)
        there.cut()
        write(log, 2)
        log.rename(tmp_path / "x.log.1")
        write(log, 3)
        await until(lambda: len(there.lines) == 3)
        write(log, 4)
        await there.probe.finish()
    assert [f"thread-{n} died" for n in (1, 2, 3, 4)] == there.lines
    assert [] == there.of(EvidenceLost)
    assert [(14, 42), (0, 28)] == joined(there.of(LogCovered))


def joined(covered: list[LogCovered]) -> list[tuple[int, int]]:
    """The ranges, those that join in one."""
    ranges: list[tuple[int, int]] = []
    for one in covered:
        if ranges and ranges[-1][1] == one.start:
            ranges[-1] = (ranges[-1][0], one.end)
        elif one.end > one.start:
            ranges.append((one.start, one.end))
    return ranges


async def test_a_command_on_a_host_that_is_lost_is_ended_and_what_it_printed_meanwhile_is_a_gap(
    sshd: Sshd, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    command = f"echo $$ >> {pids}; echo thread-$(wc -l < {pids}) died; sleep 1000"
    async with following(sshd, LogFrom(command=command)) as there:
        began = len(pids.read_text().split())  # when it was probed
        await until(lambda: there.lines)
        there.cut()
        await until(lambda: len(there.lines) == 2)
        await there.probe.finish()
    assert [f"thread-{began + n} died" for n in (1, 2)] == there.lines
    assert ["log what it printed while nobody listened is lost"] == [lost.cause for lost in there.of(EvidenceLost)]
    deadline = time.monotonic() + SOON_S
    while left := [pid for pid in pids.read_text().split() if os.path.exists(f"/proc/{pid}")]:  # noqa: ASYNC240, PTH110
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.01)


FLOOD = """
import sys
block = b"[2026-06-27 10:16:12 TP0] Decode batch, #running-req: 48, #token: 11234, token usage: 0.34, rest\\n" * 10_000
with open(sys.argv[1], "ab", buffering=0) as log:
    for _ in range(int(sys.argv[2])):
        log.write(block)
    log.write(b"thread-7 died\\n")
"""


@pytest.mark.usefixtures("nothing_left")
async def test_a_flood_on_a_host_neither_travels_nor_holds_up_the_host(sshd: Sshd, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.touch()
    async with following(sshd, LogFrom(file=str(log))) as there:
        writer = await asyncio.create_subprocess_exec(sys.executable, "-c", FLOOD, str(log), "300")
        answered = 0
        while writer.returncode is None:
            await there.host.call("now", timeout_s=SOON_S)
            answered += 1
        await there.probe.finish()
        travelled = sum(len(event.line) for event in there.of(LogHit))
    assert answered > 3
    assert ["thread-7 died"] == there.lines
    assert travelled < 100
    size = log.stat().st_size
    assert size == sum(one.end - one.start + one.lost for one in there.of(LogCovered))
