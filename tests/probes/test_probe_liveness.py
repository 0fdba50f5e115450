"""Health endpoints are recorded as they answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from probe_helpers import Recorder, VirtualClock, serving, text, until

from chaos.engine.ports import SystemClock
from chaos.engine.probes.http import make_http
from chaos.engine.probes.liveness import HealthSource, LivenessProbe, health_deadline
from chaos.model.events import Liveness

if TYPE_CHECKING:
    import httpx


def probe(http: httpx.AsyncClient, url: str, emit: Recorder, **changes: Any) -> LivenessProbe:
    source = HealthSource(node="prefill-0", base_url=url, endpoints=("/health", "/health_generate"))
    settings = {"clock": SystemClock(), "interval_s": 0.02, "deadline_s": 60.0, **changes}
    return LivenessProbe([source], http=http, emit=emit, **settings)


async def hang(request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def test_each_endpoint_is_asked_and_its_status_recorded() -> None:
    emit = Recorder()
    async with serving(health=text(""), health_generate=text("", status=503)) as url, make_http() as http:
        run = asyncio.create_task(probe(http, url, emit).run())
        await until(lambda: len(emit.of(Liveness)) >= 4)
        run.cancel()
        await asyncio.wait([run])
    got = {(event.node, event.endpoint, event.status, event.error) for event in emit.of(Liveness)}
    assert {("prefill-0", "/health", 200, ""), ("prefill-0", "/health_generate", 503, "")} == got


async def test_no_answer_and_no_server_are_not_green(unused_tcp_port: int) -> None:
    emit = Recorder()
    async with serving(health=hang, health_generate=hang) as url, make_http() as http:
        await probe(http, url, emit, deadline_s=0.05)._ask(
            HealthSource(node="n", base_url=url, endpoints=()), "/health"
        )
        gone = HealthSource(node="n", base_url=f"http://127.0.0.1:{unused_tcp_port}", endpoints=())
        await probe(http, url, emit)._ask(gone, "/health")
    assert [(None, "timeout"), (None, "refused")] == [
        (event.status, event.error.partition(":")[0]) for event in emit.of(Liveness)
    ]


async def test_a_node_is_never_asked_twice_at_the_same_time() -> None:
    now = most = 0

    async def slow(request: web.Request) -> web.Response:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.05)
        now -= 1
        return web.Response()

    emit = Recorder()
    async with serving(health=slow, health_generate=slow) as url, make_http() as http:
        run = asyncio.create_task(probe(http, url, emit, interval_s=0.01).run())
        await until(lambda: len(emit.of(Liveness)) >= 4)
        run.cancel()
        await asyncio.wait([run])
    assert 1 == most


async def test_a_paused_probe_asks_nothing() -> None:
    emit, clock = Recorder(), VirtualClock()
    async with serving(health=text(""), health_generate=text("")) as url, make_http() as http:
        liveness = probe(http, url, emit, clock=clock)
        run = asyncio.create_task(liveness.run())
        await until(lambda: len(emit.of(Liveness)) == 2)
        liveness.pause()
        await clock.advance(10.0)
        await asyncio.sleep(0.05)  # one that was asked would answer
        assert 2 == len(emit.events)
        liveness.resume()
        await clock.advance(0.02)
        await until(lambda: len(emit.events) > 2)
        run.cancel()
        await asyncio.wait([run])


@pytest.mark.parametrize(("time_scale", "deadline_s"), [(1.0, 25.0), (0.5, 12.5), (0.1, 5.0)])
def test_the_deadline_follows_the_deployment_s_clocks(time_scale: float, deadline_s: float) -> None:
    assert deadline_s == health_deadline(time_scale)
