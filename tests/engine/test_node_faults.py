"""Faults of nodes against real processes: what they do, how it is measured, and that it is undone on every way out."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import node, state_of, until

from chaos.engine.faults import signals
from chaos.engine.faults.kit import FaultKit
from chaos.engine.faults.registry import FAULTS, prepare
from chaos.engine.faults.restarts import CommandRestarter
from chaos.engine.hosts import Here, HostLost, Hosts
from chaos.engine.ports import SystemClock
from chaos.engine.probes import make_http
from chaos.engine.probes.liveness import HealthSource
from chaos.engine.timeline import Timeline
from chaos.model import events as ev
from chaos.model.actions import ACTIONS
from chaos.model.scenario import Step
from chaos.model.target import Server, ServerSpec
from chaos.outpost import guards, state

if TYPE_CHECKING:
    from collections.abc import Iterator


class NoFleet:
    """A run without load."""

    def census(self, group: str | None = None) -> dict[str, int]:
        del group
        return {}

    async def arrived(self, group: str | None = None) -> None:
        del group


class NoProbes:
    def readings(self) -> list[ev.QueueReading]:
        return []

    def mark(self) -> None:
        pass


@pytest.fixture
def events() -> list[ev.AnyEvent]:
    return []


@pytest.fixture
def kit(events) -> FaultKit:
    return FaultKit(fleet=NoFleet(), probes=NoProbes(), emit=events.append, clock=SystemClock(), run_id="r1")


@pytest.fixture(autouse=True)
def no_guard_is_left(tmp_path, monkeypatch) -> Iterator[None]:
    """Where a host is said to be lost, its guard is not told that it is needed no longer.

    Records of what cannot be taken back are the test's own: in their usual place they would stop every later run here.
    """
    monkeypatch.setattr(state, "PRIVATE", (f"{tmp_path}/records",))
    yield
    for name in tuple(guards._armed):
        guards.release(name)


def with_nodes(kit: FaultKit, *servers, **more) -> FaultKit:
    here = Here()
    hosts = Hosts({server.id: here for server in servers}, here)
    return replace(kit, **{"servers": servers, "hosts": hosts, **more})


def step(**more) -> Step:
    return Step.model_validate({"id": "fault", "at": 0.0, **more}, strict=True)


def send(what: str, **where) -> Step:
    return step(signal={"where": {"role": "decode", **where}, "send": what})


def stages(events) -> list[tuple[str, bool]]:
    return [(event.stage, event.ok) for event in events if isinstance(event, ev.FaultStep)]


def last(events, stage: str) -> ev.FaultStep:
    return [event for event in events if isinstance(event, ev.FaultStep) and event.stage == stage][-1]


def test_every_action_of_the_scenario_language_has_a_fault() -> None:
    actions = {Step.model_fields[name].annotation.__args__[0] for name in ACTIONS}
    assert actions == set(FAULTS)


# ---------------------------------------------------------------------------------------------- freeze


async def test_a_freeze_stops_every_thread_of_every_process_and_is_undone_on_leaving(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        async with prepare(send("STOP"), with_nodes(kit, one.server())) as fault:
            assert ("T", "T") == (state_of(one.pid), state_of(one.child))
            assert {one.pid, one.child} == set(fault.pids)
            assert [("applied", True), ("verified", True)] == stages(events)
            assert last(events, "verified").measured["decode-0"].startswith("2 of 2 processes stopped (threads: ")
            assert (("decode-0",), "CONT", False) == (
                last(events, "applied").nodes,
                last(events, "applied").reversal,
                last(events, "applied").ends,
            )
        assert "T" not in (state_of(one.pid), state_of(one.child))
        assert [("reverted", True), ("revert-verified", True)] == stages(events)[2:]
        assert [] == kit.leftovers


async def test_a_freeze_of_a_child_leaves_the_rest_running(tmp_path, kit) -> None:
    with node(tmp_path) as one:
        async with prepare(send("STOP", child="scheduler_TP"), with_nodes(kit, one.server())):
            assert "T" == state_of(one.child)
            assert "T" != state_of(one.pid)


async def test_a_freeze_lasts_as_long_as_it_says_on_the_engines_clocks(tmp_path, kit, events) -> None:
    frozen = step(signal={"where": {"role": "decode"}, "send": "STOP"}, **{"for": 20.0})
    with node(tmp_path) as one:
        assert await Timeline([frozen], with_nodes(kit, one.server(), time_scale=0.02)).play()
        lasted_s = (last(events, "reverted").t_ns - last(events, "applied").t_ns) / 1e9
        assert 0.4 <= lasted_s < 5.0
        assert "T" != state_of(one.pid)


async def test_a_ctrl_c_in_the_middle_of_a_freeze_undoes_it(tmp_path, kit, events) -> None:
    frozen = step(signal={"where": {"role": "decode"}, "send": "STOP"}, **{"for": 600.0})
    with node(tmp_path) as one:
        playing = asyncio.ensure_future(Timeline([frozen], with_nodes(kit, one.server())).play())
        await asyncio.to_thread(until, lambda: state_of(one.pid) == "T", "it is frozen")
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert "T" != state_of(one.pid)
        assert ("revert-verified", True) == stages(events)[-1]


async def test_a_stop_without_an_end_stands_until_the_run_ends(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        kit = with_nodes(kit, one.server())
        async with kit.standing:
            assert await Timeline([send("STOP")], kit).play()
            assert "T" == state_of(one.pid)
        assert "T" != state_of(one.pid)
        assert ("revert-verified", True) == stages(events)[-1]


HARNESS = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from test_node_faults import NoFleet, NoProbes, send
from chaos.engine.faults.kit import FaultKit
from chaos.engine.faults.registry import prepare
from chaos.engine.hosts import Here, Hosts
from chaos.engine.ports import SystemClock
from chaos.model.target import Server, ServerSpec
async def main():
    spec = ServerSpec(url="http://127.0.0.1:1", pidfile=sys.argv[1])
    kit = FaultKit(fleet=NoFleet(), probes=NoProbes(), emit=lambda _: None, clock=SystemClock(),
                   servers=(Server("decode-0", "decode", spec),), hosts=Hosts({"decode-0": Here()}, Here()))
    async with prepare(send("STOP"), kit):
        print("frozen", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def test_nothing_stays_stopped_when_pdchaos_is_killed(tmp_path) -> None:
    with node(tmp_path) as one:
        words = [sys.executable, "-c", HARNESS, str(one.pidfile), str(Path(__file__).parent)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as harness:
            assert harness.stdout.readline() == b"frozen\n"
            assert ("T", "T") == (state_of(one.pid), state_of(one.child))
            harness.kill()
        until(lambda: "T" not in (state_of(one.pid), state_of(one.child)), "the guard continues both")


class Losable(Here):
    """This machine, as one that can be lost."""

    def __init__(self) -> None:
        self.lost: tuple[str, ...] = ()

    async def call(self, op: str, /, **args: object) -> object:
        if op in self.lost:
            raise HostLost("its host is lost: cut")
        return await super().call(op, **args)


def on(host: Here, kit: FaultKit, one) -> FaultKit:
    return with_nodes(kit, one.server(), hosts=Hosts({"decode-0": host}, Here()))


async def test_where_no_guard_can_be_armed_nothing_is_stopped(tmp_path, kit, events) -> None:
    host = Losable()
    host.lost = ("guard.arm",)
    with node(tmp_path) as one:
        async with prepare(send("STOP"), on(host, kit, one)):
            assert "T" not in (state_of(one.pid), state_of(one.child))
    assert [("applied", False)] == stages(events)
    assert last(events, "applied").detail.endswith("so nothing was stopped")


async def test_a_host_that_is_lost_while_a_freeze_lasts_leaves_it_unproven_and_told_as_left(
    tmp_path, kit, events
) -> None:
    host = Losable()
    with node(tmp_path) as one:
        kit = on(host, kit, one)
        async with prepare(send("STOP"), kit):
            host.lost = ("threads", "signal")
        assert [
            ("applied", True),
            ("verified", True),
            ("verified", False),
            ("reverted", False),
            ("revert-verified", False),
        ] == stages(events)
        assert ([], [("fault", ("decode-0",))]) == (kit.leftovers, [(one.fault, one.nodes) for one in kit.doubts])


async def test_what_was_sent_to_a_host_that_is_lost_is_not_known_and_not_raised(
    tmp_path, kit, events, monkeypatch
) -> None:
    monkeypatch.setattr(signals, "EFFECT_S", 0.2)
    host = Losable()
    host.lost = ("signal",)
    with node(tmp_path) as one:
        async with prepare(send("KILL"), on(host, kit, one)):
            pass
    assert (("applied", False), "nobody knows: its host is lost: cut") == (
        stages(events)[0],
        last(events, "applied").detail,
    )


async def test_undoing_is_awaited_to_its_end_though_somebody_loses_patience(tmp_path, kit, events) -> None:
    class Slow(Here):
        async def call(self, op: str, /, **args: object) -> object:
            if op == "signal" and args["send"] == "CONT":
                asked.set()
                await asyncio.sleep(0.2)
            return await super().call(op, **args)

    asked = asyncio.Event()
    with node(tmp_path) as one:
        fault = prepare(send("STOP"), on(Slow(), kit, one))
        await fault.__aenter__()
        undoing = asyncio.ensure_future(fault.undo())
        await asked.wait()
        undoing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await undoing
        assert ("reverted", True) == stages(events)[-1]
        await asyncio.to_thread(until, lambda: "T" not in (state_of(one.pid), state_of(one.child)), "it runs again")


async def test_nodes_of_two_hosts_are_stopped_and_guarded_on_both(tmp_path, kit, events) -> None:
    class Counting(Here):
        def __init__(self) -> None:
            self.asked: list[str] = []

        async def call(self, op: str, /, **args: object) -> object:
            self.asked.append(op)
            return await super().call(op, **args)

    hosts = {"decode-0": Counting(), "decode-1": Counting()}
    with node(tmp_path) as one, node(tmp_path, "decode-1") as two:
        both = with_nodes(kit, one.server(), two.server(), hosts=Hosts(hosts, Here()))
        async with prepare(send("STOP", mode="all"), both):
            assert ("T", "T") == (state_of(one.pid), state_of(two.pid))
        assert "T" not in (state_of(one.pid), state_of(two.pid))
    for host in hosts.values():
        assert ["guard.arm", "guard.disarm"] == [op for op in host.asked if op.startswith("guard")]


async def test_a_freeze_that_somebody_else_ended_was_none(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        async with prepare(send("STOP"), with_nodes(kit, one.server())):
            os.kill(one.pid, signal.SIGCONT)
            until(lambda: state_of(one.pid) != "T", "it runs")
        assert ("verified", False) in stages(events)
        why = next(event.detail for event in events if isinstance(event, ev.FaultStep) and not event.ok)
        assert f"process {one.pid} went on before we continued it" == why


async def test_a_stop_that_does_not_stop_is_not_verified(tmp_path, kit, events, monkeypatch) -> None:
    monkeypatch.setattr(signals, "EFFECT_S", 0.2)

    async def unsent(_host, processes, _what) -> list[str]:
        return ["" for _ in processes]

    monkeypatch.setattr(signals, "send", unsent)
    with node(tmp_path) as one:
        async with prepare(send("STOP"), with_nodes(kit, one.server())):
            assert ("verified", False) == stages(events)[-1]


async def test_what_cannot_be_found_is_not_applied_and_nothing_is_touched(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        server = one.server()
        one.end()
        async with prepare(send("STOP"), with_nodes(kit, server)):
            pass
        assert [("applied", False)] == stages(events)


async def test_a_child_that_nobody_is_called_is_told_with_those_that_are(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        async with prepare(send("KILL", child="detokenizer"), with_nodes(kit, one.server())):
            pass
        assert [("applied", False)] == stages(events)
        assert "has no child that is called 'detokenizer' (children: python" in last(events, "applied").detail
        assert "" != state_of(one.pid)


# ---------------------------------------------------------------------------------------------- death


async def test_a_kill_takes_every_process_of_the_node(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        child = one.child
        async with prepare(send("KILL"), with_nodes(kit, one.server())):
            assert state_of(one.pid) in ("", "Z")
            assert state_of(child) in ("", "Z")
        assert [("applied", True), ("verified", True)] == stages(events)
        assert last(events, "applied").ends
        assert "2 of 2 processes gone (threads: 2 x gone)" == last(events, "verified").measured["decode-0"]


async def test_a_rank_is_found_by_the_numbers_in_titles(tmp_path, kit, events) -> None:
    """Rank 10 was started first, and `10` comes before `2` by letters."""
    with node(tmp_path, mode="ranks") as one:
        able = with_nodes(kit, one.server(), rank_process={"decode-0": "pretend::scheduler"})
        killed = []
        for rank in (0, 0):
            async with prepare(send("KILL", rank=rank), able) as fault:
                killed += [(state_of(pid), pid) for pid in fault.pids]
        started = sorted(pid for _, pid in killed)
        assert [started[1], started[0]] == [pid for _, pid in killed]
        assert {"", "Z"} >= {state for state, _ in killed}
        async with prepare(send("KILL", rank=0), able):
            pass
        assert "decode-0 has no rank 0 (processes of ranks: none)" == last(events, "applied").detail


async def test_a_kill_of_a_child_leaves_its_parent(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        child = one.child
        async with prepare(send("KILL", child="scheduler"), with_nodes(kit, one.server())):
            assert state_of(child) in ("", "Z")
            assert state_of(one.pid) in ("S", "R")
        assert (child,) == last(events, "applied").pids


async def test_a_term_goes_to_the_main_process_only_and_must_be_obeyed(tmp_path, kit, events, monkeypatch) -> None:
    monkeypatch.setattr(signals, "TERM_S", 0.3)
    with node(tmp_path) as obedient:
        child = obedient.child
        async with prepare(send("TERM"), with_nodes(kit, obedient.server())):
            assert ("verified", True) == stages(events)[-1]
            assert state_of(child) in ("S", "R")
        os.kill(child, signal.SIGKILL)
    with node(tmp_path, mode="stubborn") as stubborn:
        async with prepare(send("TERM"), with_nodes(kit, stubborn.server())):
            assert ("verified", False) == stages(events)[-1]
            assert f"process {stubborn.pid} is not gone after 0.3 s" == last(events, "verified").detail


async def test_a_cont_undoes_a_stop_of_an_earlier_step(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        kit = with_nodes(kit, one.server())
        async with kit.standing:
            steps = [
                Step.model_validate({"id": "stop", "at": 0.0, "signal": {"where": {"role": "decode"}, "send": "STOP"}}),
                Step.model_validate(
                    {"id": "go", "after": "stop", "signal": {"where": {"role": "decode"}, "send": "CONT"}}
                ),
            ]
            assert await Timeline(steps, kit).play()
            assert "T" != state_of(one.pid)
            assert "2 of 2 processes running" in last(events, "verified").measured["decode-0"]


async def test_cycles_take_turns_among_the_nodes(kit) -> None:
    servers = [nowhere(f"decode-{i}") for i in range(3)]
    kit = with_nodes(kit, *servers)
    assert [("decode-0",), ("decode-1",), ("decode-2",), ("decode-0",)] == [
        prepare(send("STOP"), kit, cycle=cycle).nodes for cycle in (1, 2, 3, 4)
    ]
    assert ("decode-0", "decode-2") == prepare(send("STOP", mode="50%"), kit, cycle=3).nodes
    assert ("decode-1",) == prepare(send("STOP", node="decode-1"), kit, cycle=3).nodes


def nowhere(name: str) -> Server:
    return Server(name, "decode", ServerSpec(url="http://127.0.0.1:1"))


# ---------------------------------------------------------------------------------------------- restart


def again(within_s: float) -> Step:
    return step(restart={"where": {"role": "decode"}, "timeout": within_s})


async def restarted(kit: FaultKit, one, command: str, within_s: float = 20.0) -> None:
    server = one.server(restart=command)
    health = {"decode-0": HealthSource(node="decode-0", base_url=server.spec.url, endpoints=("/health",))}
    async with make_http() as http:
        kit = with_nodes(
            kit, server, http=http, health=health, restarter=CommandRestarter({("decode-0", None): command})
        )
        async with prepare(again(within_s), kit):
            pass


async def test_a_restart_is_verified_by_a_newer_process_that_serves(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        old = one.pid
        await restarted(kit, one, one.command())
        assert [("applied", True), ("verified", True)] == stages(events)
        assert ((old in last(events, "applied").pids), True) == (True, last(events, "applied").ends)
        assert (
            f"pid {old} gone, pid {one.pid} started later, /health answers 200"
            in (last(events, "verified").measured["decode-0"])
        )


@pytest.mark.parametrize(
    ("command", "within_s", "detail"),
    [
        ("true", 3.0, "decode-0: the old process {old} still runs 3 s after the order"),
        ("echo no such unit; exit 5", 60.0, "the restart command of decode-0 ended with 5: no such unit"),
        ("sleep 60", 0.5, "the restart command of decode-0 did not end within 0.5 s"),
        ("kill -9 {old}", 3.0, "decode-0: no process took the place of {old} 3 s after the order"),
    ],
)
async def test_a_restart_that_was_none_is_not_verified(command, within_s, detail, tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        old = one.pid
        await restarted(kit, one, command.format(old=old), within_s=within_s)
        assert [("applied", True), ("verified", False)] == stages(events)
        assert detail.format(old=old) == last(events, "verified").detail


async def test_a_restarted_node_that_does_not_serve_is_not_verified(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        await restarted(kit, one, one.command("sick"), within_s=6.0)
        assert ("verified", False) == stages(events)[-1]
        assert "does not serve (/health answers 503)" in last(events, "verified").detail


async def test_a_ctrl_c_does_not_leave_a_restart_half_done(tmp_path, kit, events) -> None:
    with node(tmp_path) as one:
        old = one.pid
        running = asyncio.ensure_future(restarted(kit, one, f"sleep 0.5; {one.command()}"))
        await asyncio.to_thread(until, lambda: stages(events), "it is ordered")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        until(one.pidfile.exists, "the new one starts")
        assert old != one.pid


def test_the_command_is_looked_for_by_node() -> None:
    restarter = CommandRestarter({("decode-0", None): "true", ("decode-0", "other"): "true"})
    assert (True, False) == (restarter.can_restart("decode-0"), restarter.can_restart("decode-1"))
    assert (True, False) == (restarter.can_restart("decode-0", "other"), restarter.can_restart("decode-0", "another"))


@contextmanager
def swapped(tmp_path, kit: FaultKit, *, back: str | None = None):
    """(a node, a kit that can restart it as `other`, and as itself unless `back` is the command for that)."""
    with node(tmp_path) as one:
        plain = back if back is not None else f"echo back >> {tmp_path}/became; {one.command()}"
        commands = {
            ("decode-0", "other"): f"echo other >> {tmp_path}/became; {one.command()}",
            ("decode-0", None): plain,
        }
        yield one, with_nodes(kit, one.server(), restarter=CommandRestarter(commands))


OTHER = {"restart": {"where": {"role": "decode"}, "as": "other", "timeout": 10.0}, "for": 600.0}


async def test_a_restart_as_a_variant_is_undone_by_a_plain_one(tmp_path, kit, events) -> None:
    with swapped(tmp_path, kit) as (one, able):
        first = one.pid
        async with prepare(step(**OTHER), able):
            assert "other\n" == (tmp_path / "became").read_text()
            second = one.pid
        assert "other\nback\n" == (tmp_path / "became").read_text()
        assert ["applied", "verified", "reverted", "revert-verified"] == [stage for stage, ok in stages(events) if ok]
        assert "restart" == last(events, "applied").reversal
        assert (True, True) == (first in last(events, "applied").pids, second in last(events, "reverted").pids)
        assert f"pid {second} gone, pid {one.pid} started later" in last(events, "revert-verified").measured["decode-0"]
        assert [] == kit.leftovers


async def test_a_variant_gives_way_by_itself_when_pdchaos_is_gone(tmp_path, kit, events) -> None:
    with swapped(tmp_path, kit) as (one, able):
        async with prepare(step(**OTHER), able):
            assert 600.0 + 20.0 <= last(events, "applied").ttl_s
            ((guard, _),) = guards._armed.values()
            guard.stdin.close()  # as our death does
            became = (tmp_path / "became").read_text
            await asyncio.to_thread(until, lambda: became() == "other\nback\n", "it becomes itself")
            await asyncio.to_thread(until, one.pidfile.exists, "it is there")
            guards._armed.clear()
            guard.stdout.close()
            await asyncio.to_thread(guard.wait, 20)


async def test_where_no_guard_can_be_armed_nothing_is_restarted(tmp_path, kit, events) -> None:
    host = Losable()
    host.lost = ("guard.arm",)
    with swapped(tmp_path, kit) as (one, able):
        old = one.pid
        async with prepare(step(**OTHER), replace(able, hosts=Hosts({"decode-0": host}, Here()))):
            pass
        assert old == one.pid
    assert [("applied", False)] == stages(events)
    assert last(events, "applied").detail.endswith("so nothing was restarted")


async def test_a_ctrl_c_while_the_guard_is_armed_restarts_nothing(tmp_path, kit, events) -> None:
    class Slow(Here):
        async def call(self, op: str, /, **args: object) -> object:
            answer = await super().call(op, **args)
            if op == "guard.arm":
                asked.set()
                await asyncio.sleep(0.2)
            return answer

    asked = asyncio.Event()
    with swapped(tmp_path, kit) as (one, able):
        old = one.pid
        fault = prepare(step(**OTHER), replace(able, hosts=Hosts({"decode-0": Slow()}, Here())))
        playing = asyncio.ensure_future(fault.__aenter__())
        await asked.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert ({}, old) == (guards._armed, one.pid)
        assert not (tmp_path / "became").exists()


async def test_a_variant_lasts_from_when_it_serves_not_from_the_order(tmp_path, kit, events) -> None:
    with swapped(tmp_path, kit) as (_, able):
        assert await Timeline([step(**(OTHER | {"for": 0.4}))], able).play()
        stood_s = (last(events, "reverted").t_ns - last(events, "verified").t_ns) / 1e9
        assert stood_s >= 0.4


async def test_a_node_that_cannot_become_itself_again_is_left_over(tmp_path, kit, events) -> None:
    with swapped(tmp_path, kit, back="echo no such unit; exit 5") as (_, able):
        async with prepare(step(**OTHER), able):
            pass
        assert ("revert-verified", False) == stages(events)[-1]
        assert ["fault: the restart command of decode-0 ended with 5: no such unit"] == kit.leftovers


async def test_a_ctrl_c_while_a_variant_stands_restarts_the_node_as_itself(tmp_path, kit, events) -> None:
    with swapped(tmp_path, kit) as (_, able):
        playing = asyncio.ensure_future(Timeline([step(**OTHER)], able).play())
        await asyncio.to_thread(until, lambda: ("verified", True) in stages(events), "the variant is there")
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert "other\nback\n" == (tmp_path / "became").read_text()
        assert ("revert-verified", True) == stages(events)[-1]
