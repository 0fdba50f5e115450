"""What a scenario requires of the hosts, and what dead runs left standing, is known before anything is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chaos.engine.doctor.places import look
from chaos.engine.doctor.privileges import network, take_back, unmet_privileges
from chaos.engine.doctor.row import Row, State, verdict
from chaos.engine.hosts import Here, HostLost, Hosts, HostTrouble
from chaos.engine.hosts.lock import lock_keys
from chaos.model.errors import Refused, Unfit, UsageError
from chaos.model.outcomes import ExitCode
from chaos.model.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterable


def target(prefill: str = "10.0.0.2") -> Target:
    return Target.model_validate(
        {
            "version": 1,
            "name": "t",
            "router": {"url": "http://10.0.0.1:1", "pid": 1},
            "prefill": [{"url": f"http://{prefill}:2", "pid": 1}],
            "decode": [{"url": "http://10.0.0.3:3", "pid": 1}],
        }
    )


class Saying(Here):
    """A host whose operations answer as they are told."""

    label = "ops@gpu1"

    def __init__(self, **answers: object) -> None:
        self.answers = {
            "processes": [{"pid": 1, "start_ticks": 1}],
            "signal": [""],
            "fitness": {"missing": []},
            "net.plan": {},
            "sweep": [],
            **{name.replace("_", "."): answer for name, answer in answers.items()},
        }

    def call_now(self, op: str, /, **args: object) -> object:
        answer = self.answers[op]
        answer = answer(args) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer


def at(host: Here, of: Target) -> Hosts:
    return Hosts({server.id: host for server in of.servers}, host)


EVERYTHING = ["signal", "network", "netem", "threads"]


def test_hosts_that_give_everything_lack_nothing_and_nobody_is_asked_for_nothing() -> None:
    assert [] == unmet_privileges(EVERYTHING, target(), at(Saying(), target()))
    deaf = Saying(processes=HostLost("gone"), signal=HostLost("gone"), fitness=HostLost("gone"))
    assert [] == unmet_privileges([], target(), at(deaf, target()))


def no_netem(args: dict) -> object:
    return HostTrouble("kernel", "this kernel cannot do it: netem") if args["kind"] == "delay" else {}


@pytest.mark.parametrize(
    ("wanted", "host", "says"),
    [
        ("signal", Saying(signal=["not permitted"]), "router-0: signal: this user may not send it signals"),
        ("signal", Saying(processes=HostTrouble("not-located", "no such pid")), "router-0: signal: whose process? no"),
        ("network", Saying(net_plan=HostTrouble("denied", "it takes root")), "router-0: rate: it takes root"),
        ("netem", Saying(net_plan=no_netem), "router-0: delay: this kernel cannot do it: netem"),
        ("threads", Saying(fitness={"missing": ["py-spy"]}), "router-0: threads: py-spy is not installed"),
        ("threads", Saying(fitness=HostLost("gone")), "router-0: threads: py-spy is not installed"),
    ],
)
def test_each_privilege_that_is_missing_is_named(wanted: str, host: Saying, says: str) -> None:
    unmet = unmet_privileges([wanted], target(), at(host, target()))
    assert any(one.startswith(says) for one in unmet), unmet


def test_a_kernel_without_netem_is_no_objection_to_other_faults_of_the_network() -> None:
    assert [] == unmet_privileges(["network"], target(), at(Saying(net_plan=no_netem), target()))


def test_a_delay_is_tried_as_a_delay_alone_for_with_a_rate_it_would_be_a_rate() -> None:
    asked = []
    host = Saying(net_plan=lambda args: asked.append(args) or {})
    unmet_privileges(["network", "netem"], target(), at(host, target()))
    doses = {one["kind"]: one.keys() & {"bit_per_s", "delay_ms"} for one in asked}
    assert {"partition": set(), "rate": {"bit_per_s"}, "delay": {"delay_ms"}} == doses


def test_servers_that_share_an_address_have_no_network_between_them() -> None:
    one = Target.model_validate(
        {
            **target().model_dump(),
            "router": {"url": "http://h:1"},
            "prefill": [{"url": "http://h:2"}],
            "decode": [{"url": "http://h:3"}],
        }
    )
    assert (
        "router-0: network: every other server has the same address"
        in unmet_privileges(["network"], one, at(Saying(), one))[0]
    )


def item(kind: str, *, lives: bool = False, why: str = "") -> dict:
    return {"kind": kind, "run": "dead0001", "what": "cut", "lives": lives, "gone": not (lives or why), "why": why}


def test_what_a_dead_run_left_standing_is_taken_back_before_the_next_begins() -> None:
    told: list[str] = []
    asked: list[dict] = []
    left = [item("fault", lives=True), item("process"), item("table")]
    host = Saying(sweep=lambda args: asked.append(args) or left)
    take_back(target(), at(host, target()), told.append)
    assert ["an earlier run left something standing, taken back: table cut of run dead0001 on ops@gpu1"] == told
    assert [{"timeout_s": 30.0, "processes": False}] == asked


def test_a_run_does_not_begin_where_something_stays_or_cannot_be_seen() -> None:
    stays = Saying(sweep=[item("table", why="Operation not permitted")])
    with pytest.raises(Refused, match=r"table cut of run dead0001 on ops@gpu1 \(Operation not permitted\)"):
        take_back(target(), at(stays, target()), print)
    with pytest.raises(Unfit, match="ops@gpu1 cannot be looked at for leftovers: gone"):
        take_back(target(), at(Saying(sweep=HostLost("gone")), target()), print)


def test_the_worst_row_decides() -> None:
    rows = [Row.ok("a", "b", "c"), Row("a", "b", State.NOTE, "c")]
    assert ExitCode.AS_EXPECTED is verdict(rows)
    rows.append(Row.of("a", "ssh", Refused("no")))
    assert ExitCode.REFUSED is verdict(rows)
    rows.append(Row.of("a", "ssh", Unfit("no answer")))
    assert ExitCode.UNFIT is verdict(rows)
    rows.append(Row.of("a", "ssh", UsageError("no such key")))
    assert ExitCode.USAGE is verdict(rows)


def test_a_kernel_without_netem_is_no_fault_of_a_deployment() -> None:
    of = target()
    rows = {row.what: row.state for row in network(of.servers[0], of, at(Saying(net_plan=no_netem), of))}
    assert {"partition, loss, port-block": "ok", "rate": "ok", "delay": "note"} == rows
    denied = HostTrouble("denied", "it takes root")
    rows = {row.what: row.state for row in network(of.servers[0], of, at(Saying(net_plan=denied), of))}
    assert {"refused"} == set(rows.values())


def test_runs_on_other_targets_are_told_with_who_where_and_since_when() -> None:
    of = target()
    lock = {"owner": "eve@desk", "since_s": 0.0, "until_s": 9.0, "live": True}
    locks = [
        {**lock, "key": lock_keys(of, at(Saying(), of))[0][1][0], "run": "live0001", "target": "t"},
        {**lock, "key": "cc", "run": "live0002", "target": "neighbour"},
    ]
    items = [{**item("process", lives=True), "run": run} for run in ("live0001", "live0002", "live0003")]
    host = Saying(lock_seen=locks, sweep=items)
    rows = {(row.what, row.said): row.state for row in look(host, of, at(host, of), again="t.yaml", run="doctor-1")}
    since = "since 1970-01-01 00:00:00 UTC"
    other = f"run live0002 of eve@desk on neighbour, {since}"
    unlocked = "run live0003, since nobody knows when, which holds no lock here"
    used = f"in use by run live0001 of eve@desk on t, {since}, renewed until 1970-01-01 00:00:09 UTC"
    assert State.REFUSED is rows["lock", used]
    assert [("other runs", f"2 other runs live here and are left alone: {other}; {unlocked}")] == others(rows)


def others(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [one for one in rows if one[0].startswith("other run")]


def living(*runs: str) -> list[tuple[str, str]]:
    of = target()
    host = Saying(lock_seen=[], sweep=[{**item("process", lives=True), "run": run} for run in runs])
    rows = look(host, of, at(host, of), again="t.yaml", run="doctor-1")
    return others([(row.what, row.said) for row in rows])


def test_a_look_at_a_host_does_not_find_itself_and_names_three_of_many_others() -> None:
    def told(run: str) -> str:
        return f"run {run}, since nobody knows when, which holds no lock here"

    assert [] == living("doctor-1")
    assert [("other run", f"{told('doctor-2')}: it lives, and is left alone")] == living("doctor-1", "doctor-2")
    some = "; ".join(map(told, "abc"))
    assert [("other runs", f"3 other runs live here and are left alone: {some}")] == living(*"abc")
    assert [("other runs", f"5 other runs live here and are left alone: {some}; and 2 more")] == living(*"abcde")
