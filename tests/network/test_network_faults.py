"""Network faults from their plan to their end, between two hosts of our own, with the guard on the host itself."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from netns import NetHost, two_hosts, why_not

from chaos.engine.faults.kit import FaultKit
from chaos.engine.faults.registry import prepare
from chaos.engine.hosts import Hosts, HostTrouble
from chaos.engine.ports import SystemClock
from chaos.model import events as ev
from chaos.model.scenario import Step
from chaos.model.target import Server, ServerSpec
from chaos.outpost import state
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

if reason := why_not():
    pytest.skip(reason, allow_module_level=True)

PORT, BOOTSTRAP = 30000, 8998
BOTH = {"where": {"role": "decode"}, "from": {"role": "prefill"}}
CAME = "203.0.113.9 40000 203.0.113.1 22"


class Far:
    """One of them as the engine speaks to it: as if it were reached over SSH."""

    remote = True
    offset_ns = 0
    label = "a host in a namespace"

    def __init__(self, host: NetHost) -> None:
        self.host = host
        self.refuse = ""  # an operation that fails

    def call_now(self, op: str, /, *, timeout_s: float = 10.0, **args: Any) -> Any:
        del timeout_s
        if op == self.refuse:
            raise HostTrouble("failed", "the host said no")
        try:
            return self.host.call(op, **args)
        except Trouble as trouble:
            raise HostTrouble(trouble.kind, trouble.text) from None

    async def call(self, op: str, /, *, timeout_s: float = 10.0, **args: Any) -> Any:
        return await asyncio.to_thread(self.call_now, op, timeout_s=timeout_s, **args)


class NoFleet:
    def census(self, group: str | None = None) -> dict[str, int]:
        del group
        return {}


class NoProbes:
    def readings(self) -> list[ev.QueueReading]:
        return []


@pytest.fixture(scope="module")
def wire() -> Iterator[tuple[NetHost, NetHost]]:
    with two_hosts() as hosts:
        for host in hosts:
            host.environ["SSH_CONNECTION"] = CAME
        yield hosts


@pytest.fixture
def near(wire) -> Iterator[NetHost]:
    yield wire[0]
    wire[0].clear()


@pytest.fixture
def far(wire) -> NetHost:
    return wire[1]


@pytest.fixture
def events() -> list[ev.AnyEvent]:
    return []


def server(role: str, host: NetHost, **more: Any) -> Server:
    return Server(f"{role}-0", role, ServerSpec(url=f"http://{host.addresses[0]}:{PORT}", **more))


@pytest.fixture
def kit(near, far, events) -> FaultKit:
    servers = (server("prefill", far, bootstrap_port=BOOTSTRAP), server("decode", near))
    hosts = Hosts({"prefill-0": Far(far), "decode-0": Far(near)}, Far(near))
    return FaultKit(
        fleet=NoFleet(),
        probes=NoProbes(),
        emit=events.append,
        clock=SystemClock(),
        run_id=f"net{os.getpid()}",
        servers=servers,
        hosts=hosts,
    )


def step(kind: str, **what: Any) -> Step:
    return Step.model_validate({"id": "fault", "at": 0.0, kind: {**BOTH, **what}}, strict=True)


def towards(kind: str, **what: Any) -> Step:
    action = {"where": {"role": "decode"}, "to": {"role": "prefill"}, **what}
    return Step.model_validate({"id": "fault", "at": 0.0, kind: action}, strict=True)


def stages(events) -> list[tuple[str, bool]]:
    return [(event.stage, event.ok) for event in events if isinstance(event, ev.FaultStep)]


def last(events, stage: str) -> ev.FaultStep:
    return [event for event in events if isinstance(event, ev.FaultStep) and event.stage == stage][-1]


def standing(host: NetHost) -> bool:
    told = host.tool("nft", "list", "tables") + host.tool("tc", "qdisc", "show", "dev", host.device)
    return "pdchaos_" in told or "7db1:" in told


def records(kit: FaultKit) -> list[str]:
    return [path.name for folder in state.private_folders() for path in folder.glob(f"{kit.run_id}-*")]


def until_no_record(kit: FaultKit) -> None:
    deadline = time.monotonic() + 60
    while records(kit):
        assert time.monotonic() < deadline, "the guard did not heal"
        time.sleep(0.05)


WHOLE = [("applied", True), ("verified", True), ("reverted", True), ("revert-verified", True)]


@pytest.mark.parametrize(
    ("what", "measured"),
    [
        (step("partition"), "datagrams in 0 of 20, datagrams out 0 of 20, connections out silent, in silent"),
        (step("partition", direction="in"), "datagrams in 0 of 20, datagrams out 20 of 20, connections out silent"),
        (step("partition", direction="out"), "datagrams in 20 of 20, datagrams out 0 of 20, connections out silent"),
        (step("port_block", port=7), "the port is silent, another one answered (before: the port is answered"),
        (step("loss", percent=30.0), "datagrams arrived (before: 200 of 200); the rule dropped"),
        (towards("rate", rate=2e6), "bit/s arrived (before: "),
    ],
    ids=["both", "in", "out", "port", "loss", "rate"],
)
async def test_a_fault_is_measured_from_both_ends_when_made_and_when_taken_back(
    near, kit, events, what, measured
) -> None:
    async with prepare(what, kit):
        assert WHOLE[:2] == stages(events), events
        assert measured in last(events, "verified").measured["decode-0 / prefill-0"]
        assert standing(near)
        assert 1 == len(records(kit))
    assert WHOLE == stages(events), events[-1]
    assert not standing(near)
    assert [] == records(kit)
    assert [] == kit.leftovers


async def test_a_fault_says_whom_it_cuts_off_and_what_it_met(kit, events) -> None:
    async with prepare(step("partition"), kit) as fault:
        assert (("decode-0",), ("prefill-0",)) == (last(events, "applied").cut_off, last(events, "applied").cut_from)
        assert ("taken back", 3600.0, "decode-0 and prefill-0") == (fault.reversal, fault.ttl_s, fault.plan["between"])
    assert "dropped-in" in last(events, "reverted").measured["decode-0"]
    assert () == prepare(step("loss", percent=5.0), kit).cut_off


async def test_where_nothing_passed_before_nothing_shows_a_partition(near, kit, events) -> None:
    for way in ("input", "output"):
        chain = f"add chain inet others {way} {{ type filter hook {way} priority 0; policy drop; }}"
        near.tool("nft", f"add table inet others; {chain}")
    async with prepare(step("partition"), kit):
        assert "nothing passed before either" in last(events, "verified").detail
    assert [("applied", True), ("verified", False)] == stages(events)[:2]


async def test_a_port_that_was_silent_before_shows_no_block(near, kit, events) -> None:
    near.tool(
        "nft", "add table inet others; add chain inet others in { type filter hook input priority 0; }; "
        "add rule inet others in tcp dport 7 drop"
    )  # fmt: skip
    async with prepare(step("port_block", port=7), kit):
        pass
    assert ("verified", False) == stages(events)[1]
    assert "did not answer before" in last(events, "verified").detail


async def test_rules_that_somebody_takes_away_are_missed(near, kit, events) -> None:
    async with prepare(step("partition"), kit):
        near.clear()
    assert [("verified", True), ("verified", False)] == [told for told in stages(events) if told[0] == "verified"]
    assert "somebody else took it away" in last(events, "verified").detail
    assert ("revert-verified", True) == stages(events)[-1]


async def test_a_way_that_stays_shut_after_the_rules_are_gone_is_left_over(near, kit, events, monkeypatch) -> None:
    monkeypatch.setattr("chaos.engine.faults.network.fault.BACK_S", 0.0)
    async with prepare(step("partition"), kit):
        near.tool("ip", "link", "set", near.device, "down")
    near.tool("ip", "link", "set", near.device, "up")
    assert ("revert-verified", False) == stages(events)[-1]
    assert ["fault: decode-0 / prefill-0: datagrams do not pass as before"] == kit.leftovers


async def test_what_a_host_refuses_in_the_middle_is_taken_back_at_once(near, kit, events) -> None:
    kit.hosts.at("decode-0").refuse = "net.carry_out"
    async with prepare(step("partition"), kit):
        assert [("applied", False)] == stages(events)
        assert "the host said no, so it was taken back" == last(events, "applied").detail
        assert [] == records(kit)
    assert [("applied", False)] == stages(events)


async def test_without_a_guard_nothing_is_touched(near, kit, events) -> None:
    kit.hosts.at("decode-0").refuse = "guard.arm"
    async with prepare(step("partition"), kit):
        assert not standing(near)
    assert [("applied", False)] == stages(events)
    assert "so nothing was touched" in last(events, "applied").detail


async def test_the_host_heals_itself_when_whoever_broke_it_is_killed(near, far, kit, events) -> None:
    fault = prepare(step("partition"), kit)
    await fault.inject()
    assert standing(near)
    near.kill()
    await asyncio.to_thread(until_no_record, kit)
    assert not standing(near)


async def test_where_the_peer_is_not_ours_to_ask_our_side_and_the_rules_tell(
    near, far, events, kit, monkeypatch
) -> None:
    async def nobody(*_: object) -> bool:
        return False

    monkeypatch.setattr("chaos.engine.faults.network.fault.is_here", nobody)
    async with prepare(step("partition"), kit):
        pass
    assert WHOLE == stages(events)
    assert (
        "connections out silent (before: connections out answered)"
        == last(events, "verified").measured["decode-0 / prefill-0"]
    )
    events.clear()
    async with prepare(step("loss", percent=30.0), kit):
        pass
    assert WHOLE == stages(events)
    assert "nobody could count at both ends" in last(events, "verified").measured["decode-0 / prefill-0"]
