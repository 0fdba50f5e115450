"""What a target does not allow, or does not tell, is refused before anything is touched."""

from __future__ import annotations

import os

import pytest

from chaos import library
from chaos.engine.faults import permission
from chaos.engine.faults.permission import demand, reach
from chaos.engine.faults.restarts import CommandRestarter
from chaos.engine.hosts import Here, HostLost, Hosts, HostTrouble
from chaos.engine.probes.locate import UNTOLD
from chaos.model.errors import Refused, Unfit
from chaos.model.outcomes import ExitCode
from chaos.model.scenario import Scenario
from chaos.model.target import Target

PACKS = {name: loaded.value for name, loaded in library.load_packs().items()}
ALL = ["kill", "signal", "restart", "protocol"]


def target(**more) -> Target:
    plain = {
        "version": 1,
        "name": "here",
        "router": {"url": "http://127.0.0.1:1"},
        "prefill": [{"url": "http://127.0.0.1:2"}],
        "decode": [{"url": "http://127.0.0.1:3"}, {"url": "http://127.0.0.1:4"}],
        "allow": ALL,
    }
    return Target.model_validate({**plain, **more})


HOSTS = Hosts.here(target())


def scenario(**action) -> Scenario:
    return Scenario.model_validate(
        {"version": 1, "name": "s", "timeline": [{"id": "fault", "at": 0.0, **action}]}, strict=True
    )


FRAME = {"foreign_frame": {"where": {"role": "prefill"}}}
FREEZE = {"signal": {"where": {"role": "decode"}, "send": "STOP"}}
RESTART = {"restart": {"where": {"role": "decode"}}}
PARTITION = {"partition": {"where": {"role": "decode"}, "from": {"role": "prefill"}}}
APART = {
    "allow": ["network"],
    "prefill": [{"url": "http://10.0.0.1:2"}],
    "decode": [{"url": "http://10.0.0.2:3"}, {"url": "http://10.0.0.3:3"}],
}


@pytest.mark.parametrize(
    ("action", "changes", "message", "hint"),
    [
        (FREEZE, {"allow": ["kill"]}, "here does not allow: signal", "allow: [kill, signal]"),
        (RESTART, {"allow": ["kill"]}, "here does not allow: restart", "allow: [kill, restart]"),
        (FRAME, {"allow": ["kill"]}, "here does not allow: protocol", "allow: [kill, protocol]"),
        (PARTITION, {}, "here does not allow: network", "network]"),
        (
            PARTITION,
            {"allow": ["network"]},
            "fault: decode-0 and prefill-0 are reached at this host's own address, so no network lies between them",
            "give each server the `address` by which the others reach it; nodes on one host",
        ),
        (
            PARTITION,
            {**APART, "decode": [{"url": "http://127.0.0.1:3", "address": "10.0.0.1"}]},
            "fault: decode-0 and prefill-0 are reached at the same address, so no network lies between them",
            "give each server the `address`",
        ),
        (
            {"partition": {"where": {"role": "decode"}, "from": {"role": "prefill", "node": "prefill-9"}}},
            APART,
            "fault: here has no prefill node prefill-9",
            "it has: prefill-0",
        ),
        (
            {"partition": {"where": {"role": "prefill"}, "from": {"role": "prefill"}}},
            APART,
            "fault: prefill-0 has no peer but itself",
            "name another role",
        ),
        (
            {"port_block": {"where": {"role": "prefill"}, "port": "bootstrap", "from": {"role": "decode"}}},
            APART,
            "fault: the bootstrap port of prefill-0 is not known",
            "bootstrap_port",
        ),
        (FRAME, {}, "fault: the control socket of prefill-0 cannot be found", "bootstrap_port"),
        (
            {"restart": {"where": {"role": "decode"}, "as": "other"}, "for": 5.0},
            {"decode": [{"url": "http://127.0.0.1:3", "restart": "true"}]},
            "fault: nothing says how to restart decode-0 as other",
            "restart_as: {other: COMMAND}",
        ),
        (RESTART, {}, "fault: nothing says how to restart decode-0", "restart: COMMAND"),
        (
            FREEZE,
            {},
            f"fault: the process of decode-0 cannot be found: {UNTOLD}",
            "give it a pidfile",
        ),
        (
            {"kill": {"group": "agents", "how": "blackhole"}, "for": 5.0},
            {"via": "tunnel", "router": {"url": "http://10.0.0.1:1", "ssh": {"host": "gpu1"}}},
            "fault: a black hole takes the TCP connections of the clients, and with `via: tunnel` they are a relay's",
            "via: remote",
        ),
        (
            {"signal": {"where": {"role": "decode", "node": "decode-7"}, "send": "KILL"}},
            {},
            "fault: here has no decode node decode-7",
            "it has: decode-0, decode-1",
        ),
        (
            {"signal": {"where": {"role": "prefill", "mode": 2}, "send": "KILL"}},
            {},
            "fault: 2 prefill are wanted, but here has 1",
            "a lab: --set prefill=2",
        ),
    ],
)
def test_what_is_not_allowed_or_not_told_is_refused_with_a_hint(action, changes, message, hint) -> None:
    told = target(**changes)
    with pytest.raises(Refused) as refused:
        demand(scenario(**action), told, CommandRestarter.of(told))
    assert (message, True) == (refused.value.message, hint in refused.value.hint)
    assert ExitCode.REFUSED == refused.value.exit_code


def test_where_no_connection_can_be_made_a_black_hole_that_is_refused_with_the_reason(monkeypatch) -> None:
    step = {"kill": {"group": "agents", "how": "blackhole"}, "for": 5.0}
    demand(scenario(**step), target())
    monkeypatch.setattr(permission.blackhole, "why_impossible", lambda: "Protocol not available")
    with pytest.raises(Refused, match="no connection of this machine") as refused:
        demand(scenario(**step), target())
    assert "Protocol not available" in refused.value.message
    assert ExitCode.REFUSED == refused.value.exit_code


def test_what_is_allowed_and_told_is_not_refused() -> None:
    told = target(
        prefill=[{"url": "http://127.0.0.1:2", "bootstrap_port": 8998}],
        decode=[{"url": f"http://127.0.0.1:{port}", "restart": "true", "port": port} for port in (3, 4)],
    )
    for action in (FREEZE, FRAME, RESTART):
        demand(scenario(**action), told, CommandRestarter.of(told))


def test_a_process_that_cannot_be_found_or_signalled_is_refused_before_the_run(monkeypatch) -> None:
    gone = target(decode=[{"url": "http://127.0.0.1:3", "pidfile": "/nowhere/of/decode.pid"}])
    with pytest.raises(Refused, match="the process of decode-0 cannot be found: "):
        reach(scenario(**FREEZE), gone, PACKS, HOSTS)
    mine = target(decode=[{"url": "http://127.0.0.1:3", "pid": os.getpid()}])
    reach(scenario(**FREEZE), mine, PACKS, HOSTS)
    monkeypatch.setattr(permission, "may_signal", lambda *_: False)
    with pytest.raises(Refused, match="this user may not send signals to decode-0"):
        reach(scenario(**FREEZE), mine, PACKS, HOSTS)
    reach(scenario(**RESTART), mine, PACKS, HOSTS)  # a restart is somebody else's signal


def test_a_host_that_does_not_answer_is_told_before_the_run() -> None:
    class Lost(Here):
        def call_now(self, op: str, /, **args: object) -> object:
            raise HostLost("its host is lost: cut")

    mine = target(decode=[{"url": "http://127.0.0.1:3", "pid": os.getpid()}])
    with pytest.raises(Unfit, match="decode-0 cannot be looked for: its host is lost: cut"):
        reach(scenario(**FREEZE), mine, PACKS, Hosts({"decode-0": Lost()}, Here()))


def test_a_rank_that_is_not_there_is_refused_before_the_run() -> None:
    mine = target(decode=[{"url": "http://127.0.0.1:3", "pid": os.getpid()}])
    stop = {"signal": {"where": {"role": "decode", "rank": 1}, "send": "STOP"}}
    with pytest.raises(Refused, match=r"decode-0 has no rank 1 \(processes of ranks: none\)"):
        reach(scenario(**stop), mine, PACKS, HOSTS)
    unknown = {name: pack.model_copy(update={"rank_process": ""}) for name, pack in PACKS.items()}
    with pytest.raises(Refused, match="an engine whose pack does not say which processes are ranks"):
        reach(scenario(**stop), mine, unknown, HOSTS)


class Answers(Here):
    """A host that gives the answers it was told to give."""

    remote = False

    def __init__(self, answers: dict[str, object]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def call_now(self, op: str, /, *, timeout_s: float = 0, **args: object) -> object:
        self.asked.append(op)
        answer = self.answers[op]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "error", "message", "hint"),
    [
        ({"net.is_here": False}, Refused, "fault: decode-0 is not on this machine", "ssh: {host: …}"),
        (
            {"net.is_here": True, "net.plan": HostTrouble("denied", "this user may not")},
            Refused,
            "fault: a partition cannot be made on the host of decode-0, decode-1: this user may not",
            "be root there",
        ),
        (
            {"net.is_here": True, "net.plan": HostTrouble("kernel", "this kernel cannot do it: netem")},
            Refused,
            "this kernel cannot do it: netem",
            "",
        ),
        ({"net.is_here": True, "net.plan": HostLost("gone")}, Unfit, "fault: the host of decode-0 cannot be asked", ""),
    ],
)
def test_a_host_that_cannot_make_a_network_fault_is_refused_before_anything_is_touched(
    answers, error, message, hint
) -> None:
    host, told = Answers(answers), target(**APART)
    demand(scenario(**PARTITION), told)
    with pytest.raises(error) as refused:
        reach(scenario(**PARTITION), told, PACKS, Hosts({server.id: host for server in told.servers}, host))
    assert message in refused.value.message
    assert hint in refused.value.hint
    assert {"net.is_here", "net.plan"} >= set(host.asked)
