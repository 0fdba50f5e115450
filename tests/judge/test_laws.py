"""The laws of the judge (DESIGN §7), on runs told at random."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from build import GOOD, HANG, REFUSED, SECOND, Play, late, numbered, play
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_journals import EXPECTED
from test_journals import told as checked_in
from test_outcomes import ROWS
from worlds import MORE_NODES, journals, plays

from chaos.judge import Facts, judge, recovery
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Verdict

DEEP = os.environ.get("LAWS")
"""`LAWS=2000 pytest tests/judge/test_laws.py` tries so many runs for each law, other ones every time."""
RUNS = settings(
    max_examples=int(DEEP or 60),
    deadline=None,
    derandomize=not DEEP,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def encoded(verdict: Verdict) -> bytes:
    return msgspec.json.encode(verdict, order="deterministic")


def among(events: list[ev.AnyEvent], added: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    """The journal as it would be had these events been written, too."""
    return numbered(sorted([*events, *added], key=lambda event: (event.t_ns, isinstance(event, ev.RunEnded))))


def moments(events: list[ev.AnyEvent]) -> st.SearchStrategy[int]:
    return st.integers(events[0].t_ns, max(e.t_ns for e in events if not isinstance(e, ev.RunEnded)))


@st.composite
def target_evidence(draw: st.DrawFn, events: list[ev.AnyEvent]) -> ev.AnyEvent:  # noqa: PLR0911 - one per probe
    """Something that a probe of the target might have seen."""
    at, node = draw(moments(events)), draw(st.sampled_from(MORE_NODES))
    match draw(st.sampled_from(["log", "liveness", "dead", "scrape", "covered", "inside", "saved", "levels"])):
        case "log":
            klasses = ["fatal", "abort", "timeout", "symptom", "crash", "restart", "benign", "traceback"]
            klass, ends = draw(st.sampled_from(klasses)), draw(st.sampled_from(["", "thread"]))
            key = draw(st.sampled_from(["", "1-1", "9-9"]))
            return ev.LogHit(
                t_ns=at, node=node, stream="log", signature=f"s-{klass}", klass=klass, line="x", ends=ends, key=key
            )
        case "liveness":
            status = draw(st.sampled_from([200, 503, None]))
            error = draw(st.sampled_from(["", "refused: nobody"])) if status is None else ""
            return ev.Liveness(t_ns=at, node=node, endpoint="/health", status=status, took_ms=1.0, error=error)
        case "dead":
            return ev.ProcessSeen(t_ns=at, node=node, pid=7, alive=False, state="zombie")
        case "scrape":
            # Not the queues: a floor that is seen to have come back has come back.
            value = draw(st.floats(0, 1e6))
            samples = tuple(ev.Sample(name=name, labels="", value=value) for name in ("tokens", "aborted", "novel"))
            return ev.Scrape(t_ns=at, node=node, ok=draw(st.booleans()), samples=samples)
        case "levels":
            told = (
                ev.Sample(name=draw(st.sampled_from(["tokens", "novel"])), labels="", value=draw(st.floats(0, 1e6))),
            )
            return ev.LevelsTold(t_ns=at, node=node, by="log", samples=told, quiet_s=draw(st.sampled_from([None, 5.0])))
        case "inside":
            names = draw(st.sampled_from([("MainThread",), ("MainThread", "Thread-6 (control)")]))
            return ev.ProcessSeen(t_ns=at, node=node, pid=110, alive=True, threads=names, threads_by="python")
        case "saved":
            return ev.ForensicsTaken(t_ns=at, folder="forensics/1-end", reason="end", stacks={node: 3})
    return ev.LogCovered(t_ns=at, node=node, stream="log", start=0, end=9, lost=draw(st.sampled_from([0, 512])))


@given(st.data())
@RUNS
def test_target_evidence_never_turns_a_violation_into_none(data):
    events = data.draw(journals())
    before = judge(events)
    assume(before.outcome.violation)
    added = [data.draw(target_evidence(events)) for _ in range(data.draw(st.integers(1, 6)))]
    if before.outcome in (Outcome.RESTARTED, Outcome.DAMAGED):
        # What is claimed of a process by its last look is unsaid only by a later look at it.
        added = [event for event in added if not isinstance(event, ev.ProcessSeen)]
    assert judge(among(events, added)).outcome.violation


@st.composite
def doubt_about_us(draw: st.DrawFn, events: list[ev.AnyEvent]) -> ev.AnyEvent:
    """Trouble of our own, of any size."""
    at = draw(moments(events))
    match draw(st.sampled_from(["lag", "reference", "lost", "agent"])):
        case "lag":
            return ev.HarnessHealth(t_ns=at, who="harness", lag_max_ms=draw(st.floats(0, 60_000)))
        case "reference":
            return ev.HarnessHealth(t_ns=at, who="harness", lag_max_ms=1.0, reference_ok=False, reference_ms=None)
        case "lost":
            probe = draw(st.sampled_from(["canary", "log", "metrics", "agent:agents"]))
            return ev.EvidenceLost(t_ns=at, probe=probe, from_ns=at, to_ns=at + SECOND)
        case _:
            return ev.HarnessHealth(t_ns=at, who="agent:agents", lag_max_ms=1.0, intended=100, delivered=0)


@given(st.data())
@RUNS
def test_doubt_about_ourselves_never_turns_anything_into_healthy(data):
    events = data.draw(journals())
    before = judge(events)
    assume(before.outcome is not Outcome.HEALTHY)
    added = [data.draw(doubt_about_us(events)) for _ in range(data.draw(st.integers(1, 8)))]
    assert judge(among(events, added)).outcome is not Outcome.HEALTHY


@given(st.data())
@RUNS
def test_doubt_about_ourselves_never_hides_a_violation_that_it_cannot_explain(data):
    events = data.draw(journals())
    before = judge(events)
    assume(before.outcome.violation)
    # A hundredth of a deadline of lag, a blind log probe, an agent behind its schedule: none makes a canary fail.
    added = [
        replace_lag(event)
        for event in (data.draw(doubt_about_us(events)) for _ in range(data.draw(st.integers(1, 8))))
        if not (isinstance(event, ev.HarnessHealth) and event.reference_ok is False)
    ]
    assert before.outcome == judge(among(events, added)).outcome


def replace_lag(event: ev.AnyEvent) -> ev.AnyEvent:
    if isinstance(event, ev.HarnessHealth):
        return msgspec.structs.replace(event, lag_max_ms=min(event.lag_max_ms, 40.0))
    return event


@given(st.data())
@RUNS
def test_a_short_trouble_of_ours_does_not_hide_a_long_hang(data):
    told = play().load().wave()
    told.reply = HANG
    events = told.go(data.draw(st.integers(30, 45))).finish()
    lag = [
        ev.HarnessHealth(
            t_ns=data.draw(moments(events)),
            who="harness",
            lag_max_ms=data.draw(st.floats(0, 3000)),
            reference_ok=data.draw(st.sampled_from([True, False, None])),
        )
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    assert Outcome.WEDGED == judge(among(events, lag)).outcome


@given(st.data())
@RUNS
def test_removing_events_never_turns_inconclusive_or_worse_into_healthy(data):
    events = data.draw(journals())
    assume(judge(events).outcome is not Outcome.HEALTHY)
    kinds = data.draw(st.sets(st.sampled_from(sorted({type(e).__name__ for e in events}))))
    share = random.Random(data.draw(st.integers(0, 1000)))
    some = [e for e in events if type(e).__name__ not in kinds or share.random() < 0.3]
    cut = data.draw(st.integers(0, len(some)))
    for kept in (some, some[:cut], some[cut:]):
        assert judge(kept).outcome is not Outcome.HEALTHY


def test_a_healthy_journal_with_any_event_missing_is_inconclusive_and_accuses_nobody():
    events = play().load().wave().recovered().finish()
    assert Outcome.HEALTHY == judge(events).outcome
    for at in range(len(events)):
        assert Outcome.INCONCLUSIVE == judge(events[:at] + events[at + 1 :]).outcome, events[at]


@given(journals())
@RUNS
def test_judging_twice_gives_the_same_bytes(events):
    assert encoded(judge(events)) == encoded(judge(events))


@given(journals(), st.integers(0, 10_000))
@RUNS
def test_the_order_in_which_events_are_handed_over_changes_nothing(events, seed):
    shuffled = list(events)
    random.Random(seed).shuffle(shuffled)
    assert encoded(judge(events)) == encoded(judge(shuffled))


@given(journals(), st.integers(0, 10_000))
@RUNS
def test_numbering_simultaneous_events_in_another_order_changes_no_answer(events, seed):
    swap = random.Random(seed)
    head, tail = events[:1], events[-1:] if isinstance(events[-1], ev.RunEnded) else []
    middle = events[1 : len(events) - len(tail)]
    other = numbered([*head, *sorted(middle, key=lambda e: (e.t_ns, swap.random())), *tail])
    one, two = judge(events), judge(other)
    assert (one.outcome, one.headline, one.paths, one.waves, one.wedge) == (
        two.outcome,
        two.headline,
        two.paths,
        two.waves,
        two.wedge,
    )
    assert [(f.id, f.answer, f.outcome) for f in one.findings] == [(f.id, f.answer, f.outcome) for f in two.findings]


def shifted(value: object, by_ns: int) -> object:
    """The same events at another time of the clock."""
    if isinstance(value, dict):
        return {
            key: part + by_ns if key.endswith("_ns") and isinstance(part, int) else shifted(part, by_ns)
            for key, part in value.items()
        }
    return [shifted(part, by_ns) for part in value] if isinstance(value, list) else value


@given(journals(), st.integers(-500 * SECOND, 10**16))
@RUNS
def test_shifting_all_times_changes_nothing(events, by_ns):
    moved = msgspec.json.decode(
        msgspec.json.encode(shifted(msgspec.to_builtins(events), by_ns)), type=list[ev.AnyEvent]
    )
    assert encoded(judge(events)) == encoded(judge(moved))


@given(journals())
@RUNS
def test_renaming_nodes_changes_nothing_but_the_names(events):
    names = {"prefill-0": "zz-worker", "decode-0": "aa-worker", "router-0": "mm-front", "routed": "way"}
    names |= {"prefill-1": "bb-worker", "decode-1": "yy-worker"}

    def renamed(text: str) -> str:
        for old, new in names.items():
            # A word of its own; "routed" is also a kind of path, which is no name.
            text = (
                text.replace(f'"kind":"{old}"', '"kind":"\0"')
                .replace(old, new)
                .replace('"kind":"\0"', f'"kind":"{old}"')
            )
        return text

    other = msgspec.json.decode(renamed(msgspec.json.encode(events).decode()), type=list[ev.AnyEvent])
    assert json.loads(renamed(encoded(judge(events)).decode())) == json.loads(encoded(judge(other)))


@given(journals(), st.integers(0, 10_000))
@RUNS
def test_what_the_run_and_its_place_are_called_changes_nothing_but_that(events, seed):
    assume(isinstance(events[0], ev.RunStarted))
    chance = random.Random(seed)
    start = msgspec.structs.replace(
        events[0],
        run_id=f"r{seed}",
        target=chance.choice(["lab:sim", "lab:other", "file"]),
        tool_version="9",
        utc="1999-01-01T00:00:00Z",
        seed=seed,
        packs=(ev.PackUsed(name="p", engine="e", sha256=f"{seed:064d}"),),
    )
    told = [
        msgspec.structs.replace(event, src=f"src-{seed}", src_t_ns=seed, clock="elsewhere")
        if isinstance(event, ev.Scrape | ev.LogHit | ev.Liveness | ev.ProcessSeen | ev.HarnessHealth)
        else event
        for event in events[1:]
    ]
    one, two = judge(events), judge([start, *told])
    assert encoded(one) == encoded(msgspec.structs.replace(two, run_id=one.run_id, target=one.target))


ELSEWHERE = """
import hashlib, sys, msgspec
from chaos.judge import judge
from chaos.model import events as ev
for events in msgspec.json.decode(sys.stdin.buffer.read(), type=list[list[ev.AnyEvent]]):
    for order in (events, events[::-1]):
        print(hashlib.sha256(msgspec.json.encode(judge(order), order="deterministic")).hexdigest())
"""


@pytest.mark.parametrize(
    "there",
    [
        {"PYTHONHASHSEED": "0", "LC_ALL": "C", "PYTHONUTF8": "0", "TZ": "UTC"},
        {"PYTHONHASHSEED": "1", "LC_ALL": "tr_TR.UTF-8", "TZ": "Pacific/Chatham", "HOSTNAME": "elsewhere"},
    ],
    ids=lambda there: there["TZ"],
)
def test_another_machine_gives_the_same_bytes(there, tmp_path):
    told = [situation() for _, situation in ROWS] + [checked_in(name) for name in sorted(EXPECTED)]
    here = [hashlib.sha256(encoded(judge(events))).hexdigest() for events in told]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=msgspec.json.encode(told),
        capture_output=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin", "PYTHONPATH": str(Path(__file__).parents[2])} | there,
        check=True,
    )
    assert [digest for digest in here for _ in range(2)] == done.stdout.decode().split()


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@given(plays)
@RUNS
def test_the_live_rule_says_recovered_only_where_the_verdict_finds_that_the_path_passes(told):
    # The run stops watching on the live rule; a verdict that then called the path wedged would be a contradiction.
    facts = Facts().feed_all(told.events())
    assume(facts.plan.cycles == 1)
    live = recovery(facts, told.ns(told.now))
    told.reply, told.turns = GOOD, ()
    verdict = judge(told.finish())
    if live.recovered:
        expected = [path for path in verdict.paths if path.serves is not Answer.NOT_APPLICABLE]
        assert all(path.recovered_s is not None if live.disrupted else path.passed for path in expected)
        # A worker that its router has lost is told only by more requests than a path needs to show that it passes.
        assert verdict.wedge is None or not verdict.wedge.paths


def test_the_live_rule_waits_for_enough_settled_passes_and_for_those_that_still_wait():
    told = play().load().wave()
    assert not recovery(Facts().feed_all(told.events()), told.ns(told.now)).recovered
    assert not recovery(Facts().feed_all(told.go(5).events()), told.ns(told.now)).recovered
    assert recovery(Facts().feed_all(told.go(4).events()), told.ns(told.now)).recovered


def test_the_live_rule_is_not_fooled_by_a_stuck_rank_that_hangs_every_other_canary():
    told = play().load().wave()
    told.turns = (GOOD, HANG)
    for _ in range(20):
        live = recovery(Facts().feed_all(told.go(1).events()), told.ns(told.now))
        assert not live.recovered
    assert live.failing in ((), ("routed",))


def test_the_live_rule_serves_the_baseline_too():
    told = replace(Play()).baseline(3)
    assert not recovery(Facts().feed_all(told.events()), told.ns(told.now)).recovered
    assert recovery(Facts().feed_all(told.go(4).events()), told.ns(told.now)).recovered


@pytest.mark.parametrize("reply", [HANG, REFUSED, late(6)])
def test_the_live_rule_names_the_path_that_fails_and_since_when(reply):
    told = play().load().wave()
    told.reply = reply
    live = recovery(Facts().feed_all(told.go(20).events()), told.ns(told.now))
    assert not live.recovered
    assert ("routed",) == live.failing
    assert told.ns(15) == live.paths[0].failing_since_ns
