"""Waves fired at a real agent process that talks to a real server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from servers import HeldServer

from chaos.engine.faults.kit import FaultKit
from chaos.engine.faults.registry import prepare
from chaos.engine.hosts import Here, HostLost, Hosts
from chaos.engine.load import messages as msg
from chaos.engine.load.config import Endpoint
from chaos.engine.load.fleet import SATURATE_EVERY_S, SATURATE_STEP, Fleet
from chaos.engine.ports import SystemClock
from chaos.engine.probes.http import make_http
from chaos.engine.pyz import build_pyz
from chaos.engine.timeline import Timeline
from chaos.model import events as ev
from chaos.model.faults import Kill, Sham
from chaos.model.scenario import Arrival, Group, Saturate, Step
from chaos.model.target import Server, ServerSpec

sys.path.append(str(Path(__file__).parent.parent / "outpost"))
from relays import relayed


class NoProbes:
    """A deployment whose gauges nobody reads."""

    def __init__(self, *readings: ev.QueueReading) -> None:
        self.marked = 0
        self._readings = readings

    def readings(self) -> list[ev.QueueReading]:
        return list(self._readings)

    def mark(self) -> None:
        self.marked += 1


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_pyz(tmp_path_factory.mktemp("agent") / "agent.pyz")


class Elsewhere(Here):
    """This machine in the place of another, whose clock is a minute behind."""

    remote = True
    offset_ns = 60_000_000_000


@asynccontextmanager
async def loaded(
    tmp_path: Path,
    pyz: Path,
    server: HeldServer,
    *groups: Group,
    readings=(),
    named=(),
    way="direct",
    broke=None,
    host=None,
    relays=None,
    away=bool,
):
    events: list[ev.AnyEvent] = []
    async with AsyncExitStack() as stack:
        door = None
        if way == "tunnel":
            relay = stack.enter_context(relayed(tmp_path, {"door": ("127.0.0.1", urlsplit(server.url).port)}))
            if relays is not None:
                relays.append(relay)
            door = str(tmp_path / "door")
        there = (host or Elsewhere()) if way == "remote" else Here()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        fleet = Fleet(
            list(groups),
            Endpoint(base_url=server.url, model="m", unix_socket=door),
            run_id="test",
            seed=1,
            pyz=pyz,
            folder=tmp_path,
            emit=events.append,
            clock=SystemClock(),
            tasks=tasks,
            named=named,
            load=there if way == "remote" else None,
            broke=broke,
            away=away,
        )
        async with make_http() as http:
            kit = FaultKit(
                fleet=fleet,
                probes=NoProbes(*readings),
                emit=events.append,
                clock=SystemClock(),
                http=http,
                servers=(Server("router-0", "router", ServerSpec(url=server.url)),),
                hosts=Hosts({"router-0": there}, there),
                abort_urls=(server.url + "/abort_request",),
            )
            await fleet.start_groups()
            try:
                yield kit, events
            finally:
                await fleet.hang_up()


async def until(condition, what: str) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is awaited is another process
            await asyncio.sleep(0.02)
    assert condition(), what


def of(events: list[ev.AnyEvent], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


AGENTS = Group(name="agents", sessions=12, max_tokens=50, timeout=60.0)


def kill(how: str, **more) -> Step:
    return Step(id="wave", kill=Kill(group="agents", how=how), at=0.0, **more)


@pytest.mark.parametrize("way", ["direct", "tunnel", "remote"])
@pytest.mark.parametrize("how", ["sigkill", "rst", "fin", "cancel"])
async def test_a_wave_hits_every_session_and_is_verified_by_the_kernel(tmp_path, pyz, how, way) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS, way=way) as (kit, events):
        await until(lambda: server.waiting == 12, "all sessions wait")
        await until(lambda: (kit.fleet.census() or {}).get("waiting") == kit.fleet.open_requests == 12, "and say so")
        await prepare(kill(how, aim={"waiting": ">= 10", "server_aborts": ">= 1"}), kit).inject()
        (census,), (fired,) = of(events, ev.WaveCensus), of(events, ev.WaveFired)
        assert 12 == census.phases["waiting"]
        assert (ev.AimCheck(name="waiting", op=">=", want=10, got=12.0),) == census.aim
        assert (12, how) == (fired.sockets, fired.how)
        assert fired.ordered_ns <= fired.first_ns <= fired.last_ns
        assert (12, 12, "") == (fired.router_watched, fired.router_closed, fired.router_unknown)
        assert fired.ordered_ns <= fired.router_first_ns <= fired.router_last_ns <= fired.ordered_ns + 60_000_000_000
        assert [("applied", True), ("verified", True)] == [(s.stage, s.ok) for s in of(events, ev.FaultStep)]
        (verified,) = [step.measured for step in of(events, ev.FaultStep) if step.stage == "verified"]
        assert ("12", "0") == (verified["connections"], verified["still_established"])
        await until(lambda: server.hung_up == 12, "the server saw every client leave")
        assert (12 if how == "rst" else 0) == server.resets
        ended = of(events, ev.RequestEnded)
        await until(lambda: len(of(events, ev.RequestEnded)) == 12, "every request is accounted for")
        assert {"fault"} == {end.ended_by for end in ended}


@pytest.mark.parametrize(
    ("port", "why"), [(9, "none of these connections"), (None, "router's host")], ids=["elsewhere", "unknown"]
)
async def test_where_the_router_cannot_be_looked_at_its_view_is_unknown(tmp_path, pyz, port, why) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == 12, "all sessions wait")
        routers = (Server("router-0", "router", ServerSpec(url=f"http://127.0.0.1:{port}")),) if port else ()
        await prepare(kill("sigkill"), replace(kit, servers=routers)).inject()
        (fired,) = of(events, ev.WaveFired)
        assert (12, None) == (fired.sockets, fired.router_closed)
        assert why in fired.router_unknown


async def test_impatient_clients_give_up_by_themselves_and_that_is_verified_by_the_kernel(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        step = Step(id="wave", kill=Kill(group="agents", how="timeout", deadline=1.0, sessions=5), at=0.0)
        await prepare(step, kit).inject()
        (fired,) = of(events, ev.WaveFired)
        assert ("timeout", 5, 5) == (fired.how, fired.sessions, fired.sockets)
        assert [("applied", True), ("verified", True)] == [(s.stage, s.ok) for s in of(events, ev.FaultStep)]
        await until(lambda: server.hung_up == 5, "the server saw them leave")
        sent = {start.req: start.sent_ns for start in of(events, ev.RequestStarted)}
        gave_up = [end for end in of(events, ev.RequestEnded) if end.ended_by == "fault"]
        assert 5 == len(gave_up)
        assert all(end.src_t_ns - sent[end.req] > 990_000_000 for end in gave_up)


def hold(how: str, *, then: str = "resume") -> Step:
    return Step.model_validate(
        {"id": "wave", "kill": {"group": "agents", "how": how, "sessions": 4, "then": then}, "at": 0.0, "for": 0.2}
    )


@pytest.mark.parametrize(
    ("how", "way"),
    [("stall", "direct"), ("stall", "tunnel"), ("stall", "remote"), ("blackhole", "direct"), ("blackhole", "remote")],
)
@pytest.mark.parametrize("then", ["resume", "close"])
async def test_clients_are_held_against_the_server_and_let_go_by_measurement(tmp_path, pyz, how, way, then) -> None:
    server = HeldServer(trickle=True)
    async with server.running(), loaded(tmp_path, pyz, server, AGENTS, way=way) as (kit, events):
        server.gate.set()
        await until(lambda: (kit.fleet.census() or {}).get("streaming") == 12, "all stream")
        async with prepare(hold(how, then=then), kit) as fault:
            await fault.hold()
        steps = of(events, ev.FaultStep)
        assert [("applied", True), ("verified", True), ("reverted", True), ("revert-verified", True)] == [
            (step.stage, step.ok) for step in steps
        ]
        assert ("4", "4") == (steps[1].measured["held"], steps[1].measured["open"])
        assert int(steps[1].measured["unread_bytes" if how == "stall" else "segments_dropped"]) > 0
        assert ("0", "4" if then == "resume" else "0") == (steps[3].measured["held"], steps[3].measured["open"])
        assert (4, {"streaming": 4}) == (
            of(events, ev.WaveFired)[0].sockets, {k: v for k, v in of(events, ev.WaveCensus)[0].phases.items() if v}
        )  # fmt: skip
        if then == "close":
            await until(lambda: server.hung_up == 4, "the held clients left, and only they")
        server.finish.set()
        await until(lambda: len(of(events, ev.RequestEnded)) == 12, "every request is accounted for")
        assert 12 - 4 * (then == "close") == sum(end.ok for end in of(events, ev.RequestEnded))
    assert [] == kit.leftovers


async def test_a_hold_at_which_nothing_arrives_is_not_verified(tmp_path, pyz, monkeypatch) -> None:
    monkeypatch.setattr("chaos.engine.faults.holds.EFFECT_S", 0.3)
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        async with prepare(hold("stall"), kit):
            pass
        (_, verified, *_) = of(events, ev.FaultStep)
        assert ("verified", False, "nothing arrived at a held connection within 0.3 s") == (
            verified.stage, verified.ok, verified.detail
        )  # fmt: skip


ABORT = Step(id="wave", kill=Kill(group="agents", how="abort-api"), at=0.0)


async def test_the_engine_is_told_to_abort_what_waits_and_each_request_ends_by_our_doing(tmp_path, pyz) -> None:
    server = HeldServer()
    async with server.running(), loaded(tmp_path, pyz, server, AGENTS, named=["agents"]) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        await prepare(ABORT, kit).inject()
        steps = of(events, ev.FaultStep)
        assert [("applied", True), ("verified", True)] == [(step.stage, step.ok) for step in steps]
        assert {"requests": "12", "ended": "12"} == steps[1].measured
        assert ("abort-api", 12) == (of(events, ev.WaveFired)[0].how, of(events, ev.WaveFired)[0].sockets)
        ended = of(events, ev.RequestEnded)
        assert {("fault", "in-band")} == {(end.ended_by, end.error) for end in ended}
        assert {f"test-{end.req}" for end in ended} == {rid for rid, abort in server.aborts.items() if abort.is_set()}


async def test_an_engine_that_aborts_nothing_shows_that_nothing_ended(tmp_path, pyz, monkeypatch) -> None:
    monkeypatch.setattr("chaos.engine.faults.aborts.ENDED_S", 0.2)
    server = HeldServer(deaf=True)
    async with server.running(), loaded(tmp_path, pyz, server, AGENTS, named=["agents"]) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        await prepare(ABORT, kit).inject()
        verified = of(events, ev.FaultStep)[-1]
        assert (False, {"requests": "12", "ended": "0"}) == (verified.ok, verified.measured)


async def test_nothing_is_aborted_where_nobody_says_how(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await prepare(ABORT, replace(kit, abort_urls=())).inject()
        (applied,) = of(events, ev.FaultStep)
        assert (False, True) == (applied.ok, "endpoints.abort" in applied.detail)


async def test_a_group_that_a_wave_has_hit_is_not_filled_up_again(tmp_path, pyz) -> None:
    agents = Group(
        name="agents", sessions=2, max_tokens=50, timeout=60.0, saturate=Saturate(waiting=4, max_sessions=40)
    )
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, agents) as (kit, _):
        await until(lambda: kit.fleet.census()["waiting"] == 2 + SATURATE_STEP, "enough wait")
        await prepare(Step(id="wave", kill=Kill(group="agents", how="rst", sessions=10), at=0.0), kit).inject()
        left = kit.fleet.census()["waiting"]
        assert left < 4
        await asyncio.sleep(3 * SATURATE_EVERY_S)
        assert left == kit.fleet.census()["waiting"]


async def test_the_census_tells_streaming_from_waiting(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        server.gate.set()
        await until(lambda: kit.fleet.census()["streaming"] == 12, "all stream")
        await prepare(kill("sigkill", aim={"waiting": ">= 10"}), kit).inject()
        assert (12, 0) == (of(events, ev.WaveCensus)[0].phases["streaming"], of(events, ev.WaveCensus)[0].aim[0].got)


async def test_draining_hangs_up_on_nobody(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == 12, "all sessions wait")
        draining = asyncio.ensure_future(kit.fleet.drain(30))
        await asyncio.sleep(0.3)
        assert not draining.done()
        server.gate.set()
        server.finish.set()
        assert 0 == await draining
        assert (0, 12) == (server.hung_up, server.served)
        assert {"server"} == {end.ended_by for end in of(events, ev.RequestEnded)}


async def test_in_a_control_arm_the_sessions_leave_by_themselves_and_no_others_come(tmp_path, pyz) -> None:
    group = AGENTS.model_copy(update={"rounds": 50, "saturate": Saturate(waiting=20, max_sessions=30)})
    others = Group(name="others", sessions=2, rounds=50, timeout=60.0)
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, group, others) as (kit, events):
        await until(lambda: kit.fleet.agent("agents").open_requests >= 20, "sessions are added until enough wait")
        step = Step(id="wave", sham=Sham(group="agents"), at=0.0)
        leaving = asyncio.ensure_future(prepare(step, kit).inject())
        await until(lambda: of(events, ev.WaveCensus), "the census is taken")
        asked = len([event for event in of(events, ev.RequestStarted) if event.group == "agents"])
        server.gate.set()
        await asyncio.sleep(0.7)  # nobody waits any more, and saturation would add sessions in half a second
        server.finish.set()
        await leaving
        assert of(events, ev.WaveCensus)[0].phases["waiting"] >= 20
        assert [("applied", True, "sham"), ("verified", True, "sham")] == [
            (told.stage, told.ok, told.kind) for told in of(events, ev.FaultStep)
        ]
        assert (0, 0) == (server.hung_up, server.resets)
        ended = [event for event in of(events, ev.RequestEnded) if event.group == "agents"]
        assert (asked, {"server"}) == (len(ended), {event.ended_by for event in ended})
        assert (False, True) == (kit.fleet.agent("agents").alive, kit.fleet.agent("others").alive)
        assert asked == len([event for event in of(events, ev.RequestStarted) if event.group == "agents"])
        await kit.fleet.start_groups()
        assert kit.fleet.agent("agents").alive


async def test_in_a_control_arm_requests_that_never_end_are_told_and_left(tmp_path, pyz, monkeypatch) -> None:
    monkeypatch.setattr("chaos.engine.load.fleet.LEAVE_MARGIN_S", -59.5)
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == 12, "all sessions wait")
        await prepare(Step(id="wave", sham=Sham(group="agents"), at=0.0), kit).inject()
        assert [(False, "12"), (False, "")] == [
            (told.ok, told.measured.get("open_requests", "")) for told in of(events, ev.FaultStep)
        ]
        assert 0 == server.hung_up


async def test_in_the_place_of_a_node_fault_nothing_is_done(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        await prepare(Step(id="freeze", sham=Sham(), at=0.0), kit).inject()
        assert [True, True] == [told.ok for told in of(events, ev.FaultStep)]
        assert (12, 0) == (kit.fleet.open_requests, server.hung_up)


async def test_what_cannot_be_drained_is_hung_up_and_journaled(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        assert 12 == await kit.fleet.drain(0.2)
        assert ["harness"] * 12 == [end.ended_by for end in of(events, ev.RequestEnded)]


async def test_a_drain_that_is_known_to_be_in_vain_ends_at_once(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        async with asyncio.timeout(30):
            assert 12 == await kit.fleet.drain(1000, hopeless=lambda: True)
        assert ["harness"] * 12 == [end.ended_by for end in of(events, ev.RequestEnded)]


async def test_an_agent_that_dies_by_itself_is_lost_evidence_and_an_unplanned_disconnect(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        os.kill(kit.fleet.agent("agents").pid, signal.SIGKILL)
        await kit.fleet.agent("agents").ended()
        assert "agent:agents" == of(events, ev.EvidenceLost)[0].probe
        assert ["harness"] * 12 == [end.ended_by for end in of(events, ev.RequestEnded)]


async def test_an_agent_that_is_killed_since_it_hangs_has_its_requests_ended_by_us(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        os.kill(kit.fleet.agent("agents").pid, signal.SIGSTOP)
        await kit.fleet.hang_up()
        assert ["harness"] * 12 == [end.ended_by for end in of(events, ev.RequestEnded)]
        (lost,) = of(events, ev.EvidenceLost)
        assert ("agent:agents", True) == (lost.probe, lost.from_ns < lost.to_ns)
        assert "did not end" in lost.cause


@pytest.mark.parametrize("ends", ["it goes on", "a wave kills it"])
async def test_an_agent_that_gives_no_sign_of_life_for_long_is_lost_evidence(tmp_path, pyz, monkeypatch, ends) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        agent = kit.fleet.agent("agents")
        await until(lambda: of(events, ev.HarnessHealth), "it tells how it fares")
        assert not of(events, ev.EvidenceLost)
        monkeypatch.setattr("chaos.engine.load.books.SILENT_S", 1.5)
        os.kill(agent.pid, signal.SIGSTOP)
        await asyncio.sleep(2)
        if ends == "it goes on":
            os.kill(agent.pid, signal.SIGCONT)
            await until(lambda: of(events, ev.EvidenceLost), "the next beat shows the gap")
        else:
            await prepare(kill("sigkill"), kit).inject()
            await agent.ended()
            assert {"fault"} == {end.ended_by for end in of(events, ev.RequestEnded)}
        lost = of(events, ev.EvidenceLost)[0]
        assert ("agent:agents", "the agent gave no sign of life") == (lost.probe, lost.cause)
        assert lost.to_ns - lost.from_ns > 1.5e9


@pytest.mark.parametrize("drained_later", [False, True])
async def test_an_agent_that_somebody_else_has_end_early_is_lost_evidence(tmp_path, pyz, drained_later) -> None:
    group = AGENTS.model_copy(update={"rounds": 50})
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, group) as (kit, events):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        agent = kit.fleet.agent("agents")
        os.kill(agent.pid, signal.SIGTERM)
        if drained_later:
            await asyncio.sleep(0.5)
            await agent.drain()
        server.gate.set()
        server.finish.set()
        await agent.ended()
        assert (0, {"server"}) == (agent.returncode, {end.ended_by for end in of(events, ev.RequestEnded)})
        (lost,) = of(events, ev.EvidenceLost)
        assert ("agent:agents", True) == (lost.probe, "before its sessions were done" in lost.cause)


async def test_an_agent_that_hangs_keeps_no_run_without_a_timeline_from_ending(tmp_path, pyz, monkeypatch) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, _):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        agent = kit.fleet.agent("agents")
        finished = asyncio.ensure_future(kit.fleet.finished())
        os.kill(agent.pid, signal.SIGSTOP)
        await asyncio.sleep(0.2)
        assert not finished.done()
        monkeypatch.setattr("chaos.engine.load.books.SILENT_S", 0.5)
        async with asyncio.timeout(30):
            await finished
        assert not agent.over


async def test_a_drain_does_not_wait_for_an_agent_that_hangs_with_nothing_open(tmp_path, pyz, monkeypatch) -> None:
    group = AGENTS.model_copy(update={"rounds": 2, "think_time": 600.0})
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, group) as (kit, events):
        server.gate.set()
        server.finish.set()
        await until(lambda: len(of(events, ev.RequestEnded)) == 12, "all sessions think")
        os.kill(kit.fleet.agent("agents").pid, signal.SIGSTOP)
        monkeypatch.setattr("chaos.engine.load.books.SILENT_S", 0.5)
        async with asyncio.timeout(25):
            assert 0 == await kit.fleet.drain(1000)


async def test_sessions_that_have_done_all_their_rounds_are_a_proper_end(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        server.gate.set()
        server.finish.set()
        await kit.fleet.agent("agents").ended()
        assert (12, []) == (server.served, of(events, ev.EvidenceLost))


async def test_a_drain_in_vain_hangs_up_on_nobody_who_has_not_asked_yet(tmp_path, pyz) -> None:
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server) as (kit, events):
        kit.fleet._groups["agents"] = AGENTS
        starting = asyncio.ensure_future(kit.fleet.start_groups())
        await asyncio.sleep(0)  # its process is being started
        starting.cancel()
        server.gate.set()
        server.finish.set()
        assert 0 == await kit.fleet.drain(60, hopeless=lambda: not of(events, ev.RequestStarted))
        assert {"server"} == {end.ended_by for end in of(events, ev.RequestEnded)}


async def test_saturation_adds_sessions_until_enough_wait_but_not_more_than_allowed(tmp_path, pyz) -> None:
    group = Group(name="agents", sessions=2, max_tokens=5, saturate=Saturate(waiting=15, max_sessions=40))
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, group) as (_kit, _):
        await until(lambda: server.waiting >= 15, "enough wait")
        await asyncio.sleep(1.2)
        assert 15 <= server.waiting < 40


async def test_no_session_is_added_while_none_can_ask(tmp_path, pyz) -> None:
    group = Group(name="agents", sessions=2, max_tokens=5, saturate=Saturate(waiting=15, max_sessions=40))
    away = [True]
    async with (
        HeldServer().running() as server,
        loaded(tmp_path, pyz, server, group, away=lambda: bool(away)),
    ):
        await until(lambda: server.waiting == 2, "those of the beginning wait")
        await asyncio.sleep(2 * SATURATE_EVERY_S)
        assert 2 == server.waiting
        away.clear()
        await until(lambda: server.waiting >= 15, "now there are more")


async def test_the_next_cycle_has_fresh_sessions_and_keeps_the_bystanders(tmp_path, pyz) -> None:
    bystanders = Group(name="bystanders", sessions=2, max_tokens=5)
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS, bystanders) as (kit, events):
        await until(lambda: server.waiting == 14, "all sessions wait")
        stays = kit.fleet.agent("bystanders").pid
        await prepare(kill("sigkill"), kit).inject()
        await until(lambda: server.waiting == 2, "the server has noticed")
        await kit.fleet.start_groups()
        await until(lambda: server.waiting == kit.fleet.open_requests == 14, "a new set waits")
        assert stays == kit.fleet.agent("bystanders").pid
        sessions = {event.session for event in of(events, ev.RequestStarted) if event.group == "agents"}
        assert set(range(24)) == sessions


async def test_a_trigger_that_never_comes_is_journaled_with_what_was_seen(tmp_path, pyz) -> None:
    step = Step(id="wave", kill=Kill(group="agents"), when={"waiting": ">= 13"}, give_up=0.3)
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, AGENTS) as (kit, events):
        await until(lambda: kit.fleet.census()["waiting"] == 12, "twelve wait")
        assert not await Timeline([step], kit).play()
        (last,) = [s for s in of(events, ev.FaultStep) if s.stage == "applied"]
        assert (False, "gave up after 0.3 s: waiting was 12, wanted >= 13") == (last.ok, last.detail)
        assert [] == of(events, ev.WaveFired)
        assert 0 == kit.probes.marked


async def test_a_step_can_wait_for_a_gauge_and_for_another_step(tmp_path, pyz) -> None:
    reading = ev.QueueReading(node="decode-0", name="decode_prealloc_queue", value=7, age_s=0.1)
    steps = [
        Step(id="second", kill=Kill(group="agents", how="rst", sessions="all"), after="first"),
        Step(id="first", kill=Kill(group="agents", how="rst", sessions=3), when={"decode_prealloc_queue": ">= 7"}),
    ]
    async with (
        HeldServer().running() as server,
        loaded(tmp_path, pyz, server, AGENTS, readings=[reading]) as (kit, events),
    ):
        await until(lambda: kit.fleet.census()["waiting"] == 12, "all wait")
        assert await Timeline(steps, kit).play()
        assert [("first", 3), ("second", 9)] == [(f.wave, f.sockets) for f in of(events, ev.WaveFired)]
        assert 2 == kit.probes.marked


async def test_an_open_loop_group_stops_arriving_after_its_time(tmp_path, pyz) -> None:
    group = Group(name="agents", max_tokens=5, arrival=Arrival(**{"rate": 50.0, "for": 0.5}))
    server = HeldServer()
    server.gate.set()
    server.finish.set()
    async with server.running(), loaded(tmp_path, pyz, server, group) as (kit, _):
        await kit.fleet.agent("agents").ended()
        assert 15 <= server.served <= 35  # 25 intended; the order to stop takes a moment on a starved machine


async def test_an_agent_does_not_outlive_its_supervisor(tmp_path, pyz) -> None:
    async with HeldServer().running() as server:
        async with loaded(tmp_path, pyz, server, AGENTS) as (kit, _):
            await until(lambda: server.waiting == 12, "all wait")
            pid = kit.fleet.agent("agents").pid
        assert not psutil.pid_exists(pid)


class Lossy(Elsewhere):
    """Its connection is lost when it is told so."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def stream(self, name, /, **args):
        async with aclosing(super().stream(name, **args)) as inner:
            told = asyncio.ensure_future(anext(inner))
            losing = asyncio.ensure_future(self.lost.wait())
            try:
                while True:
                    await asyncio.wait([told, losing], return_when=asyncio.FIRST_COMPLETED)
                    if losing.done():
                        raise HostLost("the connection is down")
                    yield await told
                    told = asyncio.ensure_future(anext(inner))
            finally:
                losing.cancel()
                told.cancel()
                await asyncio.wait([told, losing])


async def test_requests_of_a_host_that_is_lost_are_ended_by_us_and_their_agent_goes_away(tmp_path, pyz) -> None:
    host = Lossy()
    async with (
        HeldServer().running() as server,
        loaded(tmp_path, pyz, server, AGENTS, way="remote", host=host) as (kit, events),
    ):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        pid = kit.fleet.agent("agents").pid
        host.lost.set()
        await until(lambda: kit.fleet.agent("agents").over, "nothing is heard of it any more")
        assert {("way", "harness")} == {(end.error, end.ended_by) for end in of(events, ev.RequestEnded)}
        assert 12 == len(of(events, ev.RequestEnded))
        (lost,) = of(events, ev.EvidenceLost)
        assert "the connection is down" in lost.cause
        assert 0 == server.hung_up  # it may end what it has
        server.gate.set()
        server.finish.set()
        await until(lambda: not psutil.pid_exists(pid), "the agent ends by itself")


def test_what_a_host_stamps_is_told_on_our_clock_and_what_it_counts_is_left_alone() -> None:
    start = msg.Start(t=5, req="r", session=1, round=0, path="routed", intended=3, sent=4)
    end = msg.End(t=9, req="r", session=1, round=0, path="routed", sent=4, first=None, last=8)
    beat = msg.Beat(t=7, lag_max_ms=1.0, intended=3)
    told = [msg.shifted(one, 100) for one in (start, end, beat)]
    assert (105, 103, 104) == (told[0].t, told[0].intended, told[0].sent)
    assert (109, 104, None, 108) == (told[1].t, told[1].sent, told[1].first, told[1].last)
    assert (107, 3) == (told[2].t, told[2].intended)


async def test_what_breaks_with_our_own_way_is_not_held_against_the_target(tmp_path, pyz) -> None:
    broken, relays = [], []
    async with (
        HeldServer().running() as server,
        loaded(tmp_path, pyz, server, AGENTS, way="tunnel", broke=lambda *_: bool(broken), relays=relays) as (
            kit,
            events,
        ),
    ):
        await until(lambda: server.waiting == kit.fleet.open_requests == 12, "all sessions wait")
        broken.append(1)
        relays[0].there.kill()
        await until(lambda: len(of(events, ev.RequestEnded)) == 12, "every request broke")
        assert {("way", "harness")} == {(end.error, end.ended_by) for end in of(events, ev.RequestEnded)}


async def test_a_condition_is_looked_at_only_once_the_group_has_arrived(tmp_path, pyz) -> None:
    group = Group(name="agents", sessions=12, max_tokens=50, timeout=60.0, arrival=Arrival(ramp=1.0))
    step = Step(id="wave", kill=Kill(group="agents"), when={"waiting": ">= 3"}, give_up=20.0)
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, group) as (kit, events):
        assert await Timeline([step], kit).play()
        assert 12 == of(events, ev.WaveCensus)[0].phases["waiting"]


async def test_a_group_that_arrives_late_is_waited_for(tmp_path, pyz) -> None:
    """An agent that the machine does not let run (here it is stopped) is behind its ramp."""
    group = Group(name="agents", sessions=12, max_tokens=50, timeout=60.0, arrival=Arrival(ramp=1.0))
    step = Step(id="wave", kill=Kill(group="agents"), when={"waiting": ">= 3"}, give_up=20.0)
    async with HeldServer().running() as server, loaded(tmp_path, pyz, server, group) as (kit, events):
        playing = asyncio.ensure_future(Timeline([step], kit).play())
        agent = kit.fleet.agent("agents")
        await until(lambda: sum(kit.fleet.census("agents").values()) >= 4, "some have begun")
        os.kill(agent.pid, signal.SIGSTOP)
        await asyncio.sleep(1.5)
        os.kill(agent.pid, signal.SIGCONT)
        assert await playing
        assert 12 == of(events, ev.WaveCensus)[0].phases["waiting"]
