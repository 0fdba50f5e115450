"""All probes together at one small deployment: started, quiet for the idle phase, and ended without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from probe_helpers import ModelServer, Recorder, until
from test_probe_discover import PACKS, ROUTER, Deployment

from chaos.engine.hosts import Hosts
from chaos.engine.owners import Owners
from chaos.engine.ports import SystemClock
from chaos.engine.probes import Probes, discover, make_http
from chaos.model.errors import UsageError
from chaos.model.events import (
    HarnessHealth,
    Liveness,
    LogCovered,
    LogHit,
    Plan,
    ProcessSeen,
    RequestEnded,
    RequestOverdue,
    RequestStarted,
    Scrape,
)
from chaos.model.scenario import Canary, Scenario
from chaos.model.target import LogFrom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from chaos.engine.ports import Clock

FATAL = b"AssertionError: First message should be b'NixlMsgGuard'. Foreign traffic?\n"


PLAN = Plan(scenario="s", canary_interval_s=0.05, canary_deadline_s=0.3, time_scale=0.1)


@dataclass
class Setup:
    """What the probes ask of a run."""

    plan: Plan = PLAN
    scenario: Scenario = field(default_factory=lambda: Scenario(version=1, name="s", canary=Canary(max_tokens=3)))
    run_id: str = "r1"
    clock: Clock = field(default_factory=SystemClock)
    owners: Owners = field(default_factory=lambda: Owners(()))


@dataclass
class Bench:
    """A deployment with probes on it."""

    model: ModelServer
    emit: Recorder
    probes: Probes
    log: Path

    def canaries(self, kind: type) -> list:
        return [event for event in self.emit.of(kind) if event.kind == "canary"]


@contextlib.asynccontextmanager
async def observed(tmp_path: Path, model: ModelServer, setup: Setup | None = None) -> AsyncIterator[Bench]:
    setup, emit = setup or Setup(), Recorder()
    log = tmp_path / "prefill.log"
    log.write_bytes(b"old " + FATAL)
    async with Deployment(router={**ROUTER, "v1__chat__completions": model}).up() as bare, make_http() as http:
        spec = bare.prefill[0].model_copy(update={"log": [LogFrom(file=str(log))], "pid": os.getpid()})
        target = bare.model_copy(update={"prefill": [spec]})
        found = await discover(target, PACKS, setup.plan, http=http, clock=setup.clock, hosts=Hosts.here(target))
        async with asyncio.TaskGroup() as tasks:
            probes = Probes(setup, found, http=http, emit=emit)
            await probes.start(tasks)
            try:
                yield Bench(model, emit, probes, log)
            finally:
                await probes.close()


def open_model() -> ModelServer:
    model = ModelServer()
    model.gate.set()
    return model


async def test_a_healthy_run_is_observed_by_every_probe_and_no_canary_is_ever_hung_up(tmp_path: Path) -> None:
    async with observed(tmp_path, open_model()) as bench:
        await until(lambda: len(bench.canaries(RequestEnded)) >= 3 and bench.emit.of(HarnessHealth))
        with bench.log.open("ab") as file:
            file.write(FATAL)
        await until(lambda: bench.emit.of(LogHit) and len(bench.emit.of(Scrape)) >= 2 and bench.emit.of(Liveness))
        await bench.probes.last(60.0)
        await bench.probes.finish()
        before = len(bench.emit.events)
        await bench.probes.close()
        assert before == len(bench.emit.events)
    assert {True} == {event.ok for event in bench.canaries(RequestEnded)}
    assert sorted(e.req for e in bench.canaries(RequestStarted)) == sorted(e.req for e in bench.canaries(RequestEnded))
    assert 0 == bench.model.hung_up
    assert {3} == {body["max_tokens"] for _, body, _ in bench.model.asked}
    assert {"tiny"} == {body["model"] for _, body, _ in bench.model.asked}
    assert [1] == [hit.count for hit in bench.emit.of(LogHit)]
    assert (len(FATAL) + 4, 2 * len(FATAL) + 4) == (
        bench.emit.of(LogCovered)[0].start,
        bench.emit.of(LogCovered)[-1].end,
    )
    assert (os.getpid(), True) == (bench.emit.of(ProcessSeen)[-1].pid, bench.emit.of(ProcessSeen)[-1].alive)
    assert {"prefill-0", "decode-0"} == {event.node for event in bench.emit.of(Scrape)}


async def test_in_the_idle_phase_nothing_of_ours_reaches_the_engine_but_observation_goes_on(tmp_path: Path) -> None:
    async with observed(tmp_path, open_model()) as bench:
        await until(lambda: bench.canaries(RequestEnded) and bench.emit.of(Liveness))
        bench.probes.pause_for_idle()
        under_way = len(bench.emit.of(Scrape))  # what was asked before is answered within two scrapes
        await until(lambda: len(bench.emit.of(Scrape)) >= under_way + 2)
        canaries, health = len(bench.canaries(RequestStarted)), len(bench.emit.of(Liveness))
        scrapes = len(bench.emit.of(Scrape))
        await until(lambda: len(bench.emit.of(Scrape)) >= scrapes + 2)
        assert (canaries, health) == (len(bench.canaries(RequestStarted)), len(bench.emit.of(Liveness)))
        bench.probes.resume()
        await until(lambda: len(bench.canaries(RequestStarted)) > canaries and len(bench.emit.of(Liveness)) > health)


async def test_after_the_last_canaries_none_is_started(tmp_path: Path) -> None:
    async with observed(tmp_path, open_model()) as bench:
        bench.probes.pause_for_idle()
        bench.probes.resume()
        await bench.probes.last(60.0)
        started = len(bench.canaries(RequestStarted))
        await asyncio.sleep(0.3)
        assert started == len(bench.canaries(RequestStarted))
    assert 0 == bench.model.hung_up


async def test_in_a_wedge_canaries_are_hung_up_only_at_the_very_end_and_that_is_journaled(tmp_path: Path) -> None:
    async with observed(tmp_path, ModelServer()) as bench:
        await until(lambda: len(bench.canaries(RequestOverdue)) >= 3)
        bench.probes.mark()
        await bench.probes.last(0.3)
        assert ([], 0) == (bench.canaries(RequestEnded), bench.model.hung_up)
        await bench.probes.finish()
        asked = len(bench.model.asked)
        await until(lambda: asked == bench.model.hung_up)
    assert [("harness", "cancelled")] * asked == [
        (event.ended_by, event.error) for event in bench.canaries(RequestEnded)
    ]


async def test_a_run_that_is_torn_down_still_says_how_its_canaries_ended(tmp_path: Path) -> None:
    seen: list[Bench] = []

    async def run() -> None:
        async with observed(tmp_path, ModelServer()) as bench:
            seen.append(bench)
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await until(lambda: seen and seen[0].canaries(RequestStarted))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    (bench,) = seen
    assert {"harness"} == {event.ended_by for event in bench.canaries(RequestEnded)}
    assert len(bench.canaries(RequestStarted)) == len(bench.canaries(RequestEnded))
    assert bench.emit.of(LogCovered)


async def test_queue_readings_come_under_canonical_names(tmp_path: Path) -> None:
    async with observed(tmp_path, open_model()) as bench:
        await until(lambda: "prefill-0" in {one.node for one in bench.probes.readings()})
        (reading, *_) = [one for one in bench.probes.readings() if one.node == "prefill-0"]
    assert ("prefill_bootstrap_queue", 115.0) == (reading.name, reading.value)


async def test_an_api_the_router_does_not_have_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    router = PACKS["sglang-router"]
    endpoints = router.endpoints.model_copy(update={"generate": ""})
    packs = {**PACKS, "sglang-router": router.model_copy(update={"endpoints": endpoints})}
    scenario = Scenario(version=1, name="s", canary=Canary(api="generate"))
    async with Deployment().up() as target, make_http() as http:
        setup = Setup(scenario=scenario)
        found = await discover(target, packs, setup.plan, http=http, clock=setup.clock, hosts=Hosts.here(target))
        with pytest.raises(UsageError, match="generate"):
            Probes(setup, found, http=http, emit=Recorder())
