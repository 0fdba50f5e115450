"""Real processes: stopped, killed, replaced, with children that come and go."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from probe_helpers import Recorder, VirtualClock, until

from chaos.engine.hosts import Here, HostLost
from chaos.engine.ports import SystemClock
from chaos.engine.probes.locate import Located, NotLocated, locate
from chaos.engine.probes.process import ProcessProbe, ProcessSource, observe
from chaos.model.events import EvidenceLost, ProcessSeen
from chaos.model.target import ServerSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A child that says it is there and leaves when its parent does, whatever becomes of that.
SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"
PARENT = (
    "import subprocess, sys\n"
    f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], stdin=sys.stdin, stdout=subprocess.PIPE)\n"
    "child.stdout.readline(); print(child.pid, flush=True); sys.stdin.read()"
)


@pytest.fixture
def start() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def make(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()


def located(pid: int) -> Located:
    ticks = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return Located(pid, psutil.Process(pid).create_time(), ticks)


def wait_for_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + 10
    while psutil.Process(pid).status() != state:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def watch(pid: int, emit: Recorder, clock: VirtualClock, host: Here | None = None, **spec: object) -> ProcessProbe:
    server = ServerSpec(url="http://127.0.0.1:1", pid=pid, **spec)
    source = ProcessSource(node="prefill-0", spec=server, host=host or Here(), found=located(pid))
    return ProcessProbe([source], emit=emit, clock=clock)


async def test_a_living_process_is_reported_once_and_then_every_ten_seconds(start: Callable) -> None:
    process = start(SLEEPER)
    process.stdout.readline()
    emit, clock = Recorder(), VirtualClock()
    probe = watch(process.pid, emit, clock)
    for _ in range(21):
        await probe.look()
        await clock.advance(1)
    seen = emit.of(ProcessSeen)
    assert [0, 10, 20] == [(event.t_ns - seen[0].t_ns) / 1e9 for event in seen]
    assert (True, process.pid, psutil.Process(process.pid).create_time()) == (
        seen[0].alive,
        seen[0].pid,
        seen[0].start_time,
    )
    assert any("python" in name for name in seen[0].threads)
    await probe.finish()
    assert 4 == len(emit.of(ProcessSeen))


async def test_a_stopped_process_and_one_that_goes_on_are_changes(start: Callable) -> None:
    process = start(SLEEPER)
    process.stdout.readline()
    emit, clock = Recorder(), VirtualClock()
    probe = watch(process.pid, emit, clock)
    await probe.look()
    os.kill(process.pid, signal.SIGSTOP)
    wait_for_state(process.pid, psutil.STATUS_STOPPED)
    await probe.look()
    os.kill(process.pid, signal.SIGCONT)
    wait_for_state(process.pid, psutil.STATUS_SLEEPING)
    await probe.look()
    states = [event.state for event in emit.of(ProcessSeen)]
    assert (3, psutil.STATUS_STOPPED) == (len(states), states[1])
    assert {True} == {event.alive for event in emit.of(ProcessSeen)}


@pytest.mark.parametrize("reaped", [False, True])
async def test_a_killed_process_is_dead_whether_or_not_somebody_took_note(start: Callable, reaped: bool) -> None:
    process = start(SLEEPER)
    process.stdout.readline()
    emit, clock = Recorder(), VirtualClock()
    probe = watch(process.pid, emit, clock)
    await probe.look()
    process.kill()
    if reaped:
        process.wait()
    else:
        wait_for_state(process.pid, psutil.STATUS_ZOMBIE)
    await probe.look()
    last = emit.of(ProcessSeen)[-1]
    assert (False, "dead" if reaped else "zombie") == (last.alive, last.state)


async def test_a_child_that_was_seen_and_died_stays_listed_as_dead(start: Callable) -> None:
    process = start(PARENT)
    child_pid = int(process.stdout.readline())
    emit, clock = Recorder(), VirtualClock()
    probe = watch(process.pid, emit, clock)
    await probe.look()
    os.kill(child_pid, signal.SIGKILL)
    wait_for_state(child_pid, psutil.STATUS_ZOMBIE)
    await probe.look()
    assert [[(child_pid, True)], [(child_pid, False)]] == [
        [(child.pid, child.alive) for child in event.children] for event in emit.of(ProcessSeen)
    ]
    assert emit.of(ProcessSeen)[-1].alive


async def test_a_child_that_outlives_its_parent_is_still_listed_as_alive(start: Callable) -> None:
    process = start(PARENT)
    child_pid = int(process.stdout.readline())
    emit, clock = Recorder(), VirtualClock()
    probe = watch(process.pid, emit, clock)
    await probe.look()
    process.kill()
    process.wait()
    await probe.look()
    last = emit.of(ProcessSeen)[-1]
    assert (False, [(child_pid, True)]) == (last.alive, [(child.pid, child.alive) for child in last.children])


async def test_a_pid_that_now_belongs_to_another_process_is_dead() -> None:
    mine = located(os.getpid())
    another = Located(mine.pid, mine.start_time, mine.start_ticks - 1)
    seen, mine_seen = await observe(Here(), [(another, ()), (mine, ())])
    assert (False, "dead", ()) == (seen.alive, seen.state, seen.threads)
    assert mine_seen.alive


# ---------------------------------------------------------------------------------------------- hosts that are lost


class Flaky(Here):
    """This machine, as one that can be lost."""

    lost = False

    async def call(self, op: str, /, **args: object) -> object:
        if self.lost:
            raise HostLost("its host is lost: cut")
        return await super().call(op, **args)


async def test_a_host_that_does_not_answer_makes_what_happened_there_unknown_and_nobody_dead(start: Callable) -> None:
    process = start(SLEEPER)
    process.stdout.readline()
    emit, clock, host = Recorder(), VirtualClock(), Flaky()
    probe = watch(process.pid, emit, clock, host)
    await probe.look()
    began_s = clock.now_ns() / 1e9
    host.lost = True
    for _ in range(13):
        await clock.advance(1)
        await probe.look()
    host.lost = False
    await clock.advance(1)
    await probe.look()
    lost = emit.of(EvidenceLost)
    assert [(0, 1), (1, 11), (11, 14)] == [(e.from_ns / 1e9 - began_s, e.to_ns / 1e9 - began_s) for e in lost]
    assert {("process", "prefill-0", "its host is lost: cut")} == {(e.probe, e.node, e.cause) for e in lost}
    assert [True, True] == [event.alive for event in emit.of(ProcessSeen)]


async def test_a_host_that_is_lost_to_the_end_is_told_at_the_end(start: Callable) -> None:
    process = start(SLEEPER)
    process.stdout.readline()
    emit, clock, host = Recorder(), VirtualClock(), Flaky()
    probe = watch(process.pid, emit, clock, host)
    await probe.look()
    host.lost = True
    await clock.advance(1)
    await probe.look()
    await clock.advance(2)
    await probe.finish()
    assert clock.now_ns() == emit.of(EvidenceLost)[-1].to_ns
    assert 2 == len(emit.of(EvidenceLost))
    assert 1 == len(emit.of(ProcessSeen))


async def test_one_host_that_hangs_does_not_keep_others_from_being_looked_at(start: Callable) -> None:
    class Hanging(Here):
        async def call(self, op: str, /, **args: object) -> object:
            await asyncio.Event().wait()

    process = start(SLEEPER)
    process.stdout.readline()
    emit = Recorder()
    spec = ServerSpec(url="http://127.0.0.1:1", pid=process.pid)
    sources = [
        ProcessSource(node=node, spec=spec, host=host, found=located(process.pid))
        for node, host in (("decode-0", Hanging()), ("prefill-0", Here()))
    ]
    probe = ProcessProbe(sources, emit=emit, clock=SystemClock(), interval_s=0.01)
    running = asyncio.ensure_future(probe.run())
    await until(lambda: emit.of(ProcessSeen))
    running.cancel()
    await asyncio.wait([running])
    assert {"prefill-0"} == {event.node for event in emit.of(ProcessSeen)}


async def test_the_process_that_took_a_dead_one_s_place_is_found_and_watched(start: Callable, tmp_path: Path) -> None:
    first, second = start(SLEEPER), start(SLEEPER)
    second.stdout.readline()
    pidfile = tmp_path / "pid"
    pidfile.write_text(f"{first.pid}\n")
    emit, clock = Recorder(), VirtualClock()
    probe = watch(first.pid, emit, clock, pidfile=str(pidfile))
    await probe.look()
    first.kill()
    first.wait()
    await probe.look()
    pidfile.write_text(f"{second.pid}\n")
    for _ in range(3):
        await probe.look()
    assert [(first.pid, True), (first.pid, False), (second.pid, True)] == [
        (event.pid, event.alive) for event in emit.of(ProcessSeen)
    ]


# ---------------------------------------------------------------------------------------------- finding them


def spec(**fields: object) -> ServerSpec:
    return ServerSpec(url="http://127.0.0.1:1", **fields)


async def test_a_process_is_found_by_pid_pidfile_or_port(tmp_path: Path) -> None:
    import socket

    me = located(os.getpid())
    (tmp_path / "pid").write_text(f" {os.getpid()} \n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert me == await locate(Here(), spec(port=listener.getsockname()[1]))
    assert me == await locate(Here(), spec(pid=os.getpid()))
    assert me == await locate(Here(), spec(pidfile=str(tmp_path / "pid")))
    assert await locate(Here(), spec()) is None


async def test_what_cannot_be_found_says_why(tmp_path: Path, unused_tcp_port: int) -> None:
    (tmp_path / "words").write_text("no pid")
    for fields, why in (
        ({"pid": 2**22 + 1}, "is no process"),
        ({"pidfile": str(tmp_path / "gone")}, "No such file"),
        ({"pidfile": str(tmp_path / "words")}, "holds no pid"),
        ({"port": unused_tcp_port}, "nobody on its host listens"),
    ):
        with pytest.raises(NotLocated, match=why):
            await locate(Here(), spec(**fields))
