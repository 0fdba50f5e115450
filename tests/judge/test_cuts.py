"""What we cut off ourselves excuses what cannot go without it, while it stands, and nothing afterwards."""

from __future__ import annotations

import pytest
from build import GOOD, HANG, Play, faulted

from chaos.judge import Facts, judge, recovery
from chaos.judge.cuts import Cut, unreachable
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

FOUR = ("router-0", "prefill-0", "prefill-1", "decode-0", "decode-1")
PAIRS = tuple(
    ev.Path(id=f"{prefill}>{decode}", kind="direct", nodes=(prefill, decode))
    for prefill in FOUR[1:3]
    for decode in FOUR[3:]
)
PATHS = (ev.Path(id="routed", kind="routed", nodes=FOUR), *PAIRS)
LOST = ("prefill-0>decode-1", "prefill-1>decode-1")


def cut_off(*, lasts_s: float | None = None, off=("decode-1",), from_=("prefill-0", "prefill-1"), lost=LOST) -> Play:
    told = faulted(kind="partition", lasts_s=lasts_s, nodes=FOUR, paths=PATHS).part(off, from_)
    told.replies |= dict.fromkeys(lost, HANG)
    return told


def test_recovery_counts_from_when_a_partition_was_taken_back_and_not_before() -> None:
    told = cut_off(lasts_s=25.0)
    told.reply = HANG
    told.go(25).mend(("decode-1",), ("prefill-0", "prefill-1")).phase("recovery")
    told.reply, told.replies = GOOD, {}
    verdict = judge(told.recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome
    assert verdict.paths[0].recovered_s < 2.0


def test_what_does_not_come_back_once_a_partition_was_taken_back_is_wedged() -> None:
    told = cut_off(lasts_s=20.0).go(20).mend(("decode-1",), ("prefill-0", "prefill-1")).phase("recovery")
    verdict = judge(told.go(45).finish())
    assert Outcome.WEDGED == verdict.outcome
    assert LOST == verdict.wedge.paths


def test_a_record_that_ends_while_a_partition_stands_accuses_nobody() -> None:
    told = cut_off(lasts_s=60.0)
    told.reply = HANG
    assert Outcome.INCONCLUSIVE == judge(told.go(45).cut()).outcome


def test_pairs_that_we_leave_cut_off_are_not_expected_to_serve_and_the_others_are() -> None:
    told = cut_off().phase("recovery")
    verdict = judge(told.recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome
    given_up = {path.path: path.note for path in verdict.paths if path.serves is Answer.NOT_APPLICABLE}
    assert set(LOST) == set(given_up)
    assert {"not expected to serve: decode-1 cut off from prefill-0 and prefill-1, which is our doing"} == set(
        given_up.values()
    )
    assert Outcome.WEDGED == judge(hanging_survivors()).outcome


def hanging_survivors():
    told = cut_off().phase("recovery")
    told.reply = HANG
    return told.go(45).finish()


def test_a_run_stops_watching_once_what_is_not_cut_off_serves() -> None:
    events = cut_off().phase("recovery").go(12).cut()
    assert recovery(Facts().feed_all(events), events[-1].t_ns).recovered
    told = cut_off().phase("recovery")
    told.replies["prefill-0>decode-0"] = HANG
    events = told.go(12).cut()
    assert not recovery(Facts().feed_all(events), events[-1].t_ns).recovered


def test_a_role_that_is_cut_off_from_another_as_a_whole_accuses_nobody() -> None:
    told = cut_off(off=("decode-0", "decode-1")).phase("recovery")
    told.reply = HANG
    verdict = judge(told.go(45).finish())
    assert Outcome.INCONCLUSIVE == verdict.outcome
    wedged = next(finding for finding in verdict.findings if finding.id == "wedged")
    assert Answer.UNKNOWN == wedged.answer
    assert "decode-0 and decode-1 cut off from prefill-0 and prefill-1, which is our doing" in wedged.evidence[0].text


def test_a_path_through_which_a_way_is_left_must_serve() -> None:
    told = faulted(kind="partition", nodes=FOUR, paths=PATHS[:1]).part(("decode-1",), ("prefill-0", "prefill-1"))
    told.reply = HANG
    assert Outcome.WEDGED == judge(told.phase("recovery").go(45).finish()).outcome


def test_a_cut_that_was_not_applied_is_no_excuse() -> None:
    told = faulted(kind="partition", nodes=FOUR, paths=PATHS)
    told.tell(
        ev.FaultStep(
            t_ns=0,
            fault="fault",
            kind="partition",
            stage="applied",
            ok=False,
            cut_off=("decode-1",),
            cut_from=("prefill-0", "prefill-1"),
        )
    )
    told.replies |= dict.fromkeys(LOST, HANG)
    assert LOST == judge(told.phase("recovery").go(45).finish()).wedge.paths


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        ([("decode-1", "prefill-1")], ()),
        ([("decode-1", "prefill-0 prefill-1")], ("decode-1",)),
        ([("decode-1", "prefill-0"), ("prefill-1", "decode-1")], ("decode-1",)),
        ([("router-0", "decode-1")], ("decode-1",)),
        ([("router-0", "prefill-0"), ("prefill-1", "decode-0 decode-1")], FOUR),
        ([("router-0", "prefill-0 prefill-1")], FOUR),
        ([("decode-0", "decode-1")], ()),
        ([("router-0", "prefill-1"), ("prefill-0", "decode-0")], ("decode-0", "prefill-1")),
        ([], ()),
    ],
)
def test_which_nodes_no_request_can_pass(cuts, expected) -> None:
    facts = Facts().feed_all(faulted(nodes=FOUR, paths=PATHS).finish())
    made = [Cut(frozenset(off.split()), frozenset(from_.split()), 0, None, 1) for off, from_ in cuts]
    assert set(expected) == unreachable(facts, FOUR, (), made)


def test_what_is_down_beside_what_is_cut_off_leaves_no_way() -> None:
    facts = Facts().feed_all(faulted(nodes=FOUR, paths=PATHS).finish())
    cut = Cut(frozenset(["prefill-0"]), frozenset(["decode-0", "decode-1"]), 0, None, 1)
    assert set(FOUR) - {"prefill-1"} == unreachable(facts, FOUR, ("prefill-1",), [cut])
