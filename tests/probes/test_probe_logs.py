"""Logs: only new lines count, rotation and truncation are seen, blindness is evidence lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_helpers import Recorder, VirtualClock, settle, until
from test_probe_scan import SIGNATURES

from chaos.engine.hosts import Here, HostLost
from chaos.engine.ports import SystemClock
from chaos.engine.probes import logs
from chaos.engine.probes.follow import LogSource, asked, known_lines
from chaos.engine.probes.logs import LogProbe
from chaos.model.events import EvidenceLost, LogCovered, LogHit
from chaos.model.target import LogFrom
from chaos.outpost import follow, lines
from chaos.outpost.budget import Budget
from chaos.outpost.scan import Scanner
from chaos.outpost.tail import LogTail

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path


Watch = Callable[["Path"], Awaitable["Watched"]]


def source(log: LogFrom, host: object) -> LogSource:
    """A source as discovery makes it: where it ends is asked first."""
    (look,) = Here().call_now("log.probe", sources=[asked(log)])
    return LogSource(
        node="prefill-0", stream="log", log=log, host=host, signatures=tuple(SIGNATURES), cursors=look["cursors"]
    )


class Stepped(Here):
    """This machine, but it looks at its logs only when told to, and one knows when all that it told was heard."""

    def __init__(self) -> None:
        self.followers: list[follow.Follower] = []
        self._go, self._heard = asyncio.Event(), asyncio.Event()
        self._finish = False
        self.down = ""

    async def call(self, op: str, /, *, timeout_s: float = 10.0, **args: object) -> object:
        if self.down:
            raise HostLost(self.down)
        if op != "log.finish":
            return await super().call(op, timeout_s=timeout_s, **args)
        self._finish = True
        self._go.set()
        return None

    async def stream(self, name: str, /, **args: object) -> AsyncGenerator[object, None]:
        if self.down:
            raise HostLost(self.down)
        follower = follow.Follower(args["sources"], args["known"], Budget())
        self.followers.append(follower)
        try:
            while not (self._finish or args["finish"]):
                self._heard.set()
                await self._go.wait()
                self._go.clear()
                if self.down:
                    raise HostLost(self.down)
                for message in follower.turn():
                    yield json.loads(json.dumps(message))
            for message in follower.finish(lambda: False):
                yield json.loads(json.dumps(message))
        finally:
            follower.close()

    async def cut(self) -> None:
        """Be lost from now on."""
        self.down = "the connection is down"
        self._heard.clear()
        self._go.set()
        await settle()

    async def turn(self) -> bool:
        """Look once; whether there is more."""
        await self._heard.wait()
        self._heard.clear()
        self._go.set()
        await self._heard.wait()
        return self.followers[-1].more


class Watched:
    """A log file with a probe on it, on virtual time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.emit = Recorder()
        self.clock = VirtualClock()
        self.host = Stepped()
        self.probe = LogProbe([source(LogFrom(file=str(path)), self.host)], emit=self.emit, clock=self.clock)
        self._run = asyncio.create_task(self.probe.run())

    def write(self, content: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(content)

    async def look(self) -> None:
        await self.clock.advance(0.2)
        while await self.host.turn():
            pass

    async def close(self) -> None:
        self._run.cancel()
        await asyncio.wait([self._run])
        if not self._run.cancelled():
            self._run.result()

    @property
    def hits(self) -> list[tuple[str, int]]:
        return [(hit.line, hit.offset) for hit in self.emit.of(LogHit)]

    @property
    def ranges(self) -> list[tuple[int, int, int, str]]:
        return [(c.start, c.end, c.lost, c.note) for c in self.emit.of(LogCovered)]

    @property
    def lost(self) -> list[str]:
        return [lost.cause for lost in self.emit.of(EvidenceLost)]


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    """Makes probes on logs and lets go of their files at the end."""
    made: list[Watched] = []

    async def make(path: Path) -> Watched:
        made.append(Watched(path))
        await settle()
        return made[-1]

    yield make
    for watched in made:
        await watched.close()


@pytest.fixture
async def log(tmp_path: Path, watch: Watch) -> Watched:
    path = tmp_path / "prefill.log"
    path.write_bytes(b"thread-0 died long ago\n")
    return await watch(path)


async def test_lines_of_a_former_life_do_not_count_and_new_ones_do(log: Watched) -> None:
    log.write(b"[2026-06-27 10:16:12] fine\nthread-1 died\n")
    await log.look()
    await log.probe.finish()
    (hit,) = log.emit.of(LogHit)
    assert ("thread-1 died", 50, "first", "symptom", "prefill-0", "2026-06-27 10:16:12") == (
        hit.line,
        hit.offset,
        hit.signature,
        hit.klass,
        hit.node,
        hit.log_time,
    )
    assert [(23, 64, 0, "")] == log.ranges
    assert [] == log.lost


async def test_a_log_in_which_nothing_happened_is_covered_not_silent(log: Watched) -> None:
    await log.probe.finish()
    assert [(23, 23, 0, "")] == log.ranges


async def test_coverage_comes_in_ranges_that_join(log: Watched) -> None:
    log.write(b"one\n")
    await log.look()
    log.probe.checkpoint()
    log.write(b"two\nthree\n")
    await log.look()
    await log.probe.finish()
    assert [(23, 27, 0, ""), (27, 37, 0, "")] == log.ranges
    assert [1, 2] == [covered.lines for covered in log.emit.of(LogCovered)]


async def test_a_line_counts_when_it_is_whole(log: Watched) -> None:
    log.write(b"thread-1 di")
    await log.look()
    assert [] == log.hits
    log.write(b"ed\n")
    await log.look()
    assert [("thread-1 died", 23)] == log.hits


async def test_a_last_line_without_an_end_counts_at_the_end(log: Watched) -> None:
    log.write(b"thread-1 died")
    await log.look()
    await log.probe.finish()
    assert [("thread-1 died", 23)] == log.hits


async def test_progress_bars_are_lines_of_their_own(log: Watched) -> None:
    log.write(b"10%|#\rthread-1 died\r20%|##\r\nthread-2 died\r\n")
    await log.look()
    assert ["thread-1 died", "thread-2 died"] == [line for line, _ in log.hits]


async def test_binary_bytes_are_kept_readable(log: Watched) -> None:
    log.write(b"\x00\xff\xfe thread-1 died \x80\n")
    await log.look()
    assert [("\ufffd\ufffd thread-1 died \ufffd", 24)] == log.hits


async def test_a_long_line_is_cut(log: Watched) -> None:
    log.write(b"thread-1 died " + b"x" * 10_000 + b"\n")
    await log.look()
    assert [4096] == [len(line) for line, _ in log.hits]


async def test_bytes_without_any_line_end_do_not_fill_the_memory(log: Watched) -> None:
    log.write(b"\x00" * (3 << 20) + b" thread-1 died\n")
    await log.look()
    assert len(log.host.followers[0]._sources[0]._tail._lines._partial) <= lines.MAX_PARTIAL_BYTES
    assert [(" thread-1 died", 23 + (3 << 20))] == log.hits


async def test_a_rotated_log_is_read_to_its_end_and_the_new_one_from_its_beginning(log: Watched) -> None:
    log.write(b"thread-1 died\n")
    await log.look()
    log.write(b"thread-2 died\nthread-3 di")
    log.path.rename(log.path.with_suffix(".1"))
    log.path.write_bytes(b"thread-4 died\n")
    await log.look()
    await log.probe.finish()
    assert [("thread-1 died", 23), ("thread-2 died", 37), ("thread-4 died", 0)] == log.hits
    assert [(23, 62, 0, "rotated"), (0, 14, 0, "")] == log.ranges
    assert [] == log.lost


async def test_a_renamed_log_that_is_still_written_is_still_read(log: Watched) -> None:
    moved = log.path.with_suffix(".1")
    log.path.rename(moved)
    await log.look()
    with moved.open("ab") as file:
        file.write(b"thread-1 died\n")
    log.path.touch()  # logrotate makes an empty successor; the writer has not opened it yet
    await log.look()
    assert [("thread-1 died", 23)] == log.hits


async def test_a_deleted_log_is_read_on_and_said_to_be_gone(log: Watched) -> None:
    with log.path.open("ab") as writer:
        log.path.unlink()
        writer.write(b"thread-1 died\n")
        writer.flush()
        await log.look()
    await log.probe.finish()
    assert [("thread-1 died", 23)] == log.hits
    assert "deleted" in log.ranges[0][3]


async def test_a_truncated_log_starts_again_and_what_was_lost_is_said(log: Watched) -> None:
    log.write(b"thread-1 died\n")
    await log.look()
    log.path.write_bytes(b"thread-2 died\n")
    await log.look()
    await log.probe.finish()
    assert [("thread-1 died", 23), ("thread-2 died", 0)] == log.hits
    assert [(23, 37, 0, "truncated"), (0, 14, 0, "")] == log.ranges
    assert ["log truncated: what was written between the last look and the cut is lost"] == log.lost


async def test_a_log_cut_and_grown_beyond_the_cursor_between_two_looks_is_noticed(log: Watched) -> None:
    await log.look()
    log.path.write_bytes(b"a new life\nthread-2 died\nand much more of it\n")
    await log.look()
    assert [("thread-2 died", 11)] == log.hits
    assert 1 == len(log.lost)


async def test_a_log_that_is_not_there_yet_is_read_from_its_beginning_once_it_is(tmp_path: Path, watch: Watch) -> None:
    log = await watch(tmp_path / "late.log")
    await log.look()
    log.write(b"thread-1 died\n")
    await log.look()
    await log.probe.finish()
    assert [("thread-1 died", 0)] == log.hits
    assert [(0, 14, 0, "")] == log.ranges
    assert [] == log.lost


async def test_a_log_that_never_appears_is_evidence_lost(tmp_path: Path, watch: Watch) -> None:
    log = await watch(tmp_path / "never.log")
    began_ns = log.clock.now_ns()
    await log.look()
    await log.probe.finish()
    (lost,) = log.emit.of(EvidenceLost)
    assert ("logs", "prefill-0", "log: missing", began_ns, log.clock.now_ns()) == (
        lost.probe,
        lost.node,
        lost.cause,
        lost.from_ns,
        lost.to_ns,
    )
    assert [] == log.ranges


async def test_a_directory_or_a_pipe_in_place_of_a_log_is_evidence_lost_and_blocks_nobody(
    tmp_path: Path, watch: Watch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        log = await watch(path)
        await log.look()
        await log.probe.finish()
        assert ["log: not a regular file"] == log.lost


async def test_a_log_unreadable_for_a_while_is_read_on_where_it_was_and_the_gap_is_said(
    log: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(b"thread-1 died\n")
    await log.look()
    real = os.pread

    def broken(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    log.write(b"thread-2 died\n")
    seen_ns = log.probe._feeds[0].last_look_ns
    await log.look()
    monkeypatch.setattr(os, "pread", real)
    await log.look()
    await log.probe.finish()
    assert ["thread-1 died", "thread-2 died"] == [line for line, _ in log.hits]
    (lost,) = log.emit.of(EvidenceLost)
    assert ("log: Input/output error", seen_ns) == (lost.cause, lost.from_ns)


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file may be opened: root, whom no mode bits stop, runs tests too."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)


async def test_a_log_without_permission_is_evidence_lost(
    log: Watched, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch)
    denied = await watch(log.path)
    await denied.look()
    await denied.probe.finish()
    assert (["log: Permission denied"], []) == (denied.lost, denied.ranges)


async def test_a_log_that_may_be_read_only_later_is_read_from_where_it_ended_at_the_start(
    log: Watched, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as denying:
        forbid(denying)
        denied = await watch(log.path)
        await denied.look()
    denied.write(b"thread-1 died\n")
    await denied.look()
    assert [("thread-1 died", 23)] == denied.hits
    assert ["log: Permission denied"] == denied.lost


async def test_the_first_hits_are_kept_raw_and_the_rest_counted_every_second(
    log: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "RAW_HITS", 3)
    log.write(b"thread-1 died\n" * 10)
    await log.look()
    assert [1, 1, 1] == [hit.count for hit in log.emit.of(LogHit)]
    await log.clock.advance(1)
    log.write(b"thread-1 died\n" * 5)
    await log.look()
    assert [1, 1, 1, 12] == [hit.count for hit in log.emit.of(LogHit)]
    log.write(b"thread-1 died\n")
    await log.probe.finish()
    assert [1, 1, 1, 12, 1] == [hit.count for hit in log.emit.of(LogHit)]


async def test_echoes_of_one_occurrence_are_not_counted_again(log: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "RAW_HITS", 2)
    log.write(b"".join(b"room=%d gone\n" % (n // 2) for n in range(10)))
    await log.look()
    await log.probe.finish()
    assert [("0", 1), ("0", 1), ("", 4)] == [(hit.key, hit.count) for hit in log.emit.of(LogHit)]


async def test_a_flood_of_ten_thousand_lines_a_second_is_kept_up_with_and_stalls_no_loop(log: Watched) -> None:
    """Counts, not times: the machine may starve. Ten seconds' worth of lines are read in one go, off the loop."""
    probe = LogProbe([source(LogFrom(file=str(log.path)), Here())], emit=log.emit, clock=SystemClock(), poll_s=0.001)
    filler = b"[2026-06-27 10:16:12 TP0] Decode batch, #running-req: 48, #token: 11234, token usage: 0.34, rest\n"
    for n in range(10):
        log.write(filler * 10_000 + b"thread-%d died\n" % n)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking, running = asyncio.create_task(tick()), asyncio.create_task(probe.run())
    await until(lambda: len(log.hits) == 10)
    ticking.cancel()
    await probe.finish()
    await running
    assert [f"thread-{n} died" for n in range(10)] == [line for line, _ in log.hits]
    assert ticks > 100


async def test_a_look_that_is_cancelled_loses_no_line(log: Watched) -> None:
    probe = LogProbe([source(LogFrom(file=str(log.path)), Here())], emit=log.emit, clock=SystemClock(), poll_s=0.001)
    run = asyncio.create_task(probe.run())
    for n in range(300):
        log.write(b"thread-%d died\n" % n)
        await asyncio.sleep(0)
    await until(lambda: log.hits)
    run.cancel()
    await asyncio.wait([run])
    log.write(b"thread-300 died\n")
    await probe.finish()
    assert 301 == sum(hit.count for hit in log.emit.of(LogHit))
    assert [] == log.lost


async def test_a_host_that_is_lost_for_a_while_loses_no_line_of_a_file(log: Watched) -> None:
    log.write(b"thread-1 died\nthread-2 di")
    await log.look()
    await log.host.cut()
    log.write(b"ed\nthread-3 died\n")
    await log.clock.advance(5)  # attempts that fail
    log.host.down = ""
    await log.clock.advance(logs.AGAIN_S)
    await log.look()
    await log.probe.finish()
    assert [("thread-1 died", 23), ("thread-2 died", 37), ("thread-3 died", 51)] == log.hits
    assert [(23, 48, 0, ""), (37, 65, 0, "")] == log.ranges  # a line that had begun is read again
    assert [] == log.lost


async def test_a_host_that_does_not_come_back_is_evidence_lost_and_holds_nobody_up(
    log: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FINISH_S", 0.05)
    log.write(b"thread-1 died\n")
    await log.look()
    seen_ns = log.clock.now_ns()
    await log.host.cut()
    await log.clock.advance(5)
    log.probe.checkpoint()
    await log.probe.finish()
    (lost,) = log.emit.of(EvidenceLost)
    assert ("prefill-0", seen_ns, log.clock.now_ns()) == (lost.node, lost.from_ns, lost.to_ns)
    assert "nobody could read its log" in lost.cause
    assert [(23, 37, 0, "")] == log.ranges  # what was read was read, and of the time since nothing is said
    assert seen_ns == log.emit.of(LogCovered)[-1].t_ns
    assert [("thread-1 died", 23)] == log.hits


FLOOD = """
import sys
block = b"[2026-06-27 10:16:12 TP0] Decode batch, #running-req: 48, #token: 11234, token usage: 0.34, rest\\n" * 10_000
with open(sys.argv[1], "ab", buffering=0) as log:
    for _ in range(int(sys.argv[2])):
        log.write(block)
"""
"""Writes blocks of a megabyte as fast as the machine takes them, far more than 50 MB/s."""


async def test_a_log_that_grows_as_fast_as_the_machine_can_write_holds_up_nothing(log: Watched) -> None:
    """Every byte is read or counted as lost, and the end is where the file ended when it was asked for."""
    probe = LogProbe([source(LogFrom(file=str(log.path)), Here())], emit=log.emit, clock=SystemClock(), poll_s=0.01)
    running = asyncio.create_task(probe.run())
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", FLOOD, str(log.path), "1500")
    try:
        await until(lambda: log.path.stat().st_size > 300 << 20, within_s=60)
        asked_at = log.path.stat().st_size
        await probe.finish()
        ended_at = log.path.stat().st_size
    finally:
        with contextlib.suppress(ProcessLookupError):
            writer.kill()
        await writer.wait()
    await running
    (last, *_) = sorted((end for _, end, _, _ in log.ranges), reverse=True)
    assert asked_at <= last <= ended_at
    assert last - 23 == sum(end - start + lost for start, end, lost, _ in log.ranges)
    assert sum(lost for _, _, lost, _ in log.ranges) > 0
    assert any("were skipped" in cause for cause in log.lost)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 64 << 10


async def test_the_past_that_a_command_prints_is_no_evidence_and_that_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("thread-0 died\n[2020-06-27 10:16:12 TP0] thread-1 died\nthread-2 died\n")
    emit = Recorder()
    command = source(LogFrom(command=f"exec tail -n +1 -F {log}"), Here())
    probe = LogProbe([command], emit=emit, clock=SystemClock(), poll_s=0.01)
    running = asyncio.create_task(probe.run())

    def told() -> list[LogCovered]:
        probe.checkpoint()
        return [covered for covered in emit.of(LogCovered) if covered.note]

    await until(lambda: [one for one in told() if one.note.endswith(" 3")])  # it has paused
    with log.open("a") as file:
        file.write(f"[{datetime.now(UTC):%Y-%m-%d %H:%M:%S} TP0] thread-3 died\n")
    await until(lambda: emit.of(LogHit))
    await probe.finish()
    await running
    (hit,) = emit.of(LogHit)
    assert hit.line.endswith("thread-3 died")
    assert {"known lines older than the run, or told before: 3"} == {one.note for one in told()[-2:]}


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5), st.integers(1, 50))
def test_hits_do_not_depend_on_how_the_file_grew(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, cuts: list[int], budget: int
) -> None:
    content = noise[:100] + b"\nthread-1 died\n" + noise[100:] + b"\rroom=5 gone\n" + noise
    path = tmp_path_factory.mktemp("grow") / "x.log"
    scanner = Scanner(known_lines(SIGNATURES))
    grown = LogTail(path, scanner)
    got = []
    for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(content)], strict=True):
        with path.open("ab") as file:
            file.write(content[a:b])
        more = True
        while more:
            news = grown.look(Budget(), budget)
            more = news.more
            got += news.hits
    got += grown.finish()
    grown.close()
    whole = scanner.scan(content)
    assert [(found.line, found.start) for found in whole] == [(hit.found.line, hit.offset) for hit in got]
