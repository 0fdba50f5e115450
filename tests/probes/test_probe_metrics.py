"""Scrapes: what is read, and that blindness is said and never raised."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from probe_helpers import Recorder, VirtualClock, serving, text, until
from test_probe_exposition import STYLE

from chaos.engine.ports import SystemClock
from chaos.engine.probes import metrics
from chaos.engine.probes.exposition import Exposition, Wanted
from chaos.engine.probes.http import make_http
from chaos.engine.probes.metrics import MetricsProbe, MetricsSource
from chaos.model.events import QueueReading, Scrape

if TYPE_CHECKING:
    from probe_helpers import Handler

WANTED = (
    Wanted(name="bootstrap", kind="gauge", use="queue", exposed=("sglang:num_prefill_bootstrap_queue_reqs",)),
    Wanted(name="transfer_failed", kind="counter", use="aborts", exposed=("sglang:num_transfer_failed_reqs_total",)),
    Wanted(name="occupancy", kind="gauge", use="info", exposed=("sglang:fwd_occupancy",)),
)


def source(url: str) -> MetricsSource:
    return MetricsSource(node="prefill-0", url=url + "/metrics", wanted=WANTED)


async def scraped(handler: Handler) -> Scrape:
    """One scrape of a server that does `handler`."""
    emit = Recorder()
    async with serving(metrics=handler) as url, make_http() as http:
        probe = MetricsProbe([source(url)], http=http, emit=emit, clock=SystemClock())
        await probe.scrape(source(url), Exposition(WANTED))
    (event,) = emit.of(Scrape)
    return event


async def test_a_scrape_has_samples_under_canonical_names_and_what_never_counted() -> None:
    event = await scraped(text(STYLE))
    assert (True, "", ("transfer_failed",)) == (event.ok, event.error, event.zero)
    assert [("bootstrap", 58.0), ("bootstrap", 57.0)] == [(sample.name, sample.value) for sample in event.samples]


async def test_a_large_body_is_read_just_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PARSE_HERE_BYTES", 10)
    assert 2 == len((await scraped(text(STYLE))).samples)


async def hang(request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def break_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-length": "100000"})
    await response.prepare(request)
    await response.write(STYLE.encode())
    request.transport.close()
    return response


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (text("not here", status=404), "HTTP 404"),
        (text("<html></html>", content_type="text/html"), "HTML"),
        (text(STYLE, content_type="text/html"), "HTML"),
        (text("{}\n"), "not an exposition"),
        (text(b"\x1f\x8b\x08\x00garbage"), "cut"),
        (text(STYLE[:-30]), "cut"),
        (text(STYLE.replace("58.0", "many")), "no value"),
        (text(b""), "empty"),
        (hang, "no answer"),
        (break_off, "truncated"),
        (text("# x\n" + "y" * 2000 + "\n"), "larger than"),
    ],
    ids=["404", "html", "html-type", "json", "gzip", "cut", "word", "empty", "hang", "broken-off", "huge"],
)
async def test_what_cannot_be_read_is_said_and_never_raised(
    handler: Handler, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(metrics, "MAX_BODY_BYTES", 1900)
    event = await scraped(handler)
    assert (False, (), ()) == (event.ok, event.samples, event.zero)
    assert error in event.error


async def test_a_server_that_is_gone_is_said(unused_tcp_port: int) -> None:
    emit = Recorder()
    gone = source(f"http://127.0.0.1:{unused_tcp_port}")
    async with make_http() as http:
        await MetricsProbe([gone], http=http, emit=emit, clock=SystemClock()).scrape(gone, Exposition(WANTED))
    assert emit.of(Scrape)[0].error.startswith("refused")


async def test_readings_are_summed_over_ranks_and_age_until_the_next_good_scrape() -> None:
    clock, emit = VirtualClock(), Recorder()
    status = {"status": 200}

    async def sometimes(request: web.Request) -> web.Response:
        return web.Response(text=STYLE, **status)

    async with serving(metrics=sometimes) as url, make_http() as http:
        probe = MetricsProbe([source(url)], http=http, emit=emit, clock=clock)
        assert [] == probe.readings(clock.now_ns())
        reader = Exposition(WANTED)
        await probe.scrape(source(url), reader)
        status["status"] = 500
        await clock.advance(3)
        await probe.scrape(source(url), reader)
    expected = QueueReading(node="prefill-0", name="bootstrap", value=115.0, age_s=3.0)
    assert [expected] == probe.readings(clock.now_ns())


async def test_every_node_is_scraped_every_interval_and_a_slow_one_holds_up_only_itself() -> None:
    emit = Recorder()
    asked = 0

    async def slow(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return await hang(request)

    async with serving(metrics=slow) as slow_url, serving(metrics=text(STYLE)) as url, make_http() as http:
        sources = [source(slow_url), MetricsSource(node="decode-0", url=url + "/metrics", wanted=WANTED)]
        probe = MetricsProbe(sources, http=http, emit=emit, clock=SystemClock(), interval_s=0.02)
        run = asyncio.create_task(probe.run())
        await until(lambda: len(emit.of(Scrape)) >= 5)
        run.cancel()
        await asyncio.wait([run])
    assert {"decode-0"} == {event.node for event in emit.of(Scrape)}
    assert 1 == asked
