"""The harness's own fitness: lag is measured, the reference canary is real."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
import time
import warnings
from typing import TYPE_CHECKING

from probe_helpers import Recorder, VirtualClock, settle, until

from chaos.engine.hosts import Here, HostLost
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
    monkeypatch.setattr(ourselves, "REFERENCE_DEADLINE_S", 60.0)
    monkeypatch.setattr(ourselves, "REFERENCE_S", 0.02)
    monkeypatch.setattr(ourselves, "REPORT_S", 0.2)
    emit = Recorder()

    def told() -> list[HarnessHealth]:
        return [event for event in emit.of(HarnessHealth) if event.reference_ok is not None]

    async with make_http() as http:
        run = asyncio.create_task(OurselvesProbe(http=http, emit=emit, clock=SystemClock(), run_id="r").run())
        await until(told)
        run.cancel()
        await asyncio.wait([run])
    ended = [event for event in emit.of(RequestEnded) if event.ended_by != "harness"]
    assert {("reference", "reference", True, 1)} == {(e.kind, e.path, e.ok, e.tokens) for e in ended}
    assert emit.of(RequestStarted)[0].req.startswith("reference-")
    assert (True, True) == (told()[0].reference_ok, told()[0].reference_ms > 0)


async def test_a_reference_that_hangs_is_no_proof_that_we_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ourselves, "REFERENCE_DEADLINE_S", 0.1)
    monkeypatch.setattr(ourselves, "REFERENCE_S", 0.05)
    monkeypatch.setattr(ourselves, "REPORT_S", 0.3)
    emit = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(ReferenceServer, "url", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        async with make_http() as http:
            run = asyncio.create_task(OurselvesProbe(http=http, emit=emit, clock=SystemClock(), run_id="r").run())
            await until(lambda: any(event.reference_ok is not None for event in emit.of(HarnessHealth)))
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


def test_connections_that_come_with_the_end_are_closed_too() -> None:
    with contextlib.ExitStack() as clients, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with ReferenceServer() as server:
            held = threading.Event()
            server._loop.call_soon_threadsafe(held.wait)  # until both have come, so that it finds them at once
            for _ in range(2):
                clients.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            server._loop.call_soon_threadsafe(server._stop.set)
            held.set()
        gc.collect()
    assert [] == said


async def test_every_host_is_asked_how_long_its_processes_waited() -> None:
    class Told(Here):
        def __init__(self, **shares: float) -> None:
            self.shares, self.asked = shares, []

        async def call(self, op: str, /, **args: object) -> object:
            self.asked.append((op, args["watch"], args["roots"]))
            return self.shares

    one, two, wait = Told(a=0.5), Told(b=0.1), CpuWait()
    whereabouts = [(one, {"a": Located(7, 0.0, 0)}), (two, {"b": Located(8, 0.0, 0), "c": Located(9, 0.0, 0)})]
    assert {"a": 0.5, "b": 0.1} == await wait.sample(whereabouts)
    await wait.sample(whereabouts)
    assert [{"a": 7}, {"a": 7}] == [roots for _, _, roots in one.asked]
    assert [{"b": 8, "c": 9}] * 2 == [roots for _, _, roots in two.asked]
    assert {("starved", one.asked[0][1])} == {(op, watch) for op, watch, _ in (*one.asked, *two.asked)}
    assert {} == await CpuWait().sample([(Here(), {"gone": Located(2**22 + 1, 0.0, 0)})])


async def test_a_host_that_does_not_answer_says_nothing_of_waiting() -> None:
    class Lost(Here):
        async def call(self, op: str, /, **args: object) -> object:
            raise HostLost("gone")

    assert {} == await CpuWait().sample([(Lost(), {"decode-0": Located(os.getpid(), 0.0, 0)})])
