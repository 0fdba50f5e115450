"""The harness's own fitness: lag is measured, the reference canary is real."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from probe_helpers import Recorder, VirtualClock, settle, until

from chaos.engine.ports import SystemClock
from chaos.engine.probes import ourselves
from chaos.engine.probes.http import make_http
from chaos.engine.probes.locate import Located
from chaos.engine.probes.ourselves import OurselvesProbe
from chaos.engine.probes.reference import ReferenceServer
from chaos.engine.probes.starved import CpuWait
from chaos.model.events import HarnessHealth, RequestEnded, RequestStarted

if TYPE_CHECKING:
    import pytest


async def test_lag_is_what_a_sleep_took_longer_than_asked() -> None:
    clock, emit = VirtualClock(), Recorder()
    async with make_http() as http:
        probe = OurselvesProbe(http=http, emit=emit, clock=clock, run_id="r")
        sampling = asyncio.create_task(probe._sample())
        await clock.advance(0.5)
        probe.report()
        await clock.stall(0.7)
        await clock.advance(0.5)
        probe.report()
        sampling.cancel()
    quiet, stalled = emit.of(HarnessHealth)
    assert (0.0, 0.0) == (quiet.lag_max_ms, quiet.lag_p99_ms)
    assert 690 <= stalled.lag_max_ms <= 700
    assert stalled.lag_p99_ms <= stalled.lag_max_ms
    assert "harness" == stalled.who
    assert stalled.open_files > 2


async def test_a_blocked_loop_shows_as_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = Recorder()
    async with make_http() as http:
        probe = OurselvesProbe(http=http, emit=emit, clock=SystemClock(), run_id="r")
        sampling = asyncio.create_task(probe._sample())
        await asyncio.sleep(0.02)
        time.sleep(0.2)  # noqa: ASYNC251 - this is the fault
        await asyncio.sleep(0.02)
        probe.report()
        sampling.cancel()
    assert emit.of(HarnessHealth)[0].lag_max_ms > 150


async def test_the_reference_canary_passes_on_the_same_client_and_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ourselves, "REFERENCE_S", 0.02)
    monkeypatch.setattr(ourselves, "REPORT_S", 0.2)
    emit = Recorder()
    async with make_http() as http:
        run = asyncio.create_task(OurselvesProbe(http=http, emit=emit, clock=SystemClock(), run_id="r").run())
        await until(lambda: emit.of(HarnessHealth))
        run.cancel()
        await asyncio.wait([run])
    ended = [event for event in emit.of(RequestEnded) if event.ended_by != "harness"]
    assert {("reference", "reference", True, 1)} == {(e.kind, e.path, e.ok, e.tokens) for e in ended}
    assert emit.of(RequestStarted)[0].req.startswith("reference-")
    assert (True, True) == (emit.of(HarnessHealth)[0].reference_ok, emit.of(HarnessHealth)[0].reference_ms > 0)


async def test_a_reference_that_hangs_is_no_proof_that_we_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ourselves, "REFERENCE_DEADLINE_S", 0.1)
    monkeypatch.setattr(ourselves, "REFERENCE_S", 0.05)
    monkeypatch.setattr(ourselves, "REPORT_S", 0.3)
    emit = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(ReferenceServer, "url", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        async with make_http() as http:
            run = asyncio.create_task(OurselvesProbe(http=http, emit=emit, clock=SystemClock(), run_id="r").run())
            await until(lambda: any(event.reference_ok is not None for event in emit.of(HarnessHealth)), within_s=60.0)
            run.cancel()
            await asyncio.wait([run])
    assert {None, False} >= {event.reference_ok for event in emit.of(HarnessHealth)}


async def test_a_second_without_a_reference_answer_is_unknown() -> None:
    emit = Recorder()
    async with make_http() as http:
        OurselvesProbe(http=http, emit=emit, clock=VirtualClock(), run_id="r").report()
    await settle()
    assert emit.of(HarnessHealth)[0].reference_ok is None


def test_the_reference_server_binds_loopback_and_leaves_no_thread_behind() -> None:
    with ReferenceServer() as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        assert "127.0.0.1" == client.getpeername()[0]
        client.sendall(b"nonsense\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
    assert "reference" not in [thread.name for thread in threading.enumerate()]


def test_a_process_that_must_share_a_cpu_is_seen_waiting_and_an_idle_one_is_not() -> None:
    """Three that want the same CPU all the time get a third of it each, whatever else the machine does."""
    cpu = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(3)]
    idle = subprocess.Popen(["sleep", "60"])
    located = {f"decode-{n}": Located(process.pid, 0.0) for n, process in enumerate([*spinning, idle])}
    try:
        wait = CpuWait()
        assert {} == wait.sample(located)  # nothing to compare with
        shares: dict[str, float] = {}
        deadline = time.monotonic() + 20
        while len(shares) < 3 and time.monotonic() < deadline:
            time.sleep(0.5)
            shares |= wait.sample(located)
    finally:
        for process in (*spinning, idle):
            process.kill()
            process.wait()
    assert {"decode-0", "decode-1", "decode-2"} == set(shares)
    assert all(0.3 < share <= 1.0 for share in shares.values())
    assert {} == wait.sample({"gone": Located(idle.pid, 0.0)})
