"""Which lines of the logs explain an outcome, in which order, and what they say of where it sits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build import HANG, Play, play, waved

from chaos.judge import judge
from chaos.model import events as ev

if TYPE_CHECKING:
    from chaos.model.verdict import Verdict

TWO_PREFILLS = ("router-0", "prefill-0", "prefill-1", "decode-0")


def wedging(told: Play) -> Verdict:
    """From now on every fresh request hangs."""
    told.reply = HANG
    return judge(told.go(45).finish())


def signatures(verdict: Verdict) -> list[str]:
    return [cause.signature for cause in verdict.causes]


def test_that_a_server_came_up_explains_nothing():
    assert ["starving"] == signatures(
        wedging(waved().hit("router-0", "came-up", "restart").hit("prefill-0", "starving", "symptom"))
    )


def test_what_a_server_complained_of_before_any_load_explains_nothing_unless_it_ended_something():
    told = play().hit("decode-0", "grumbling", "symptom").fatal("prefill-0")
    told = told.go(2).load().hit("decode-0", "under-load", "symptom").wave()
    assert ["control-thread-died", "under-load"] == signatures(wedging(told))


@pytest.mark.parametrize(
    ("fatal", "order"),
    [
        pytest.param("prefill-0", ["control-thread-died", "own", "of-the-other"], id="fatal"),
        pytest.param("", ["of-the-other", "own"], id="none"),
    ],
)
def test_lines_of_the_wedged_side_come_before_earlier_ones_of_the_other(fatal, order):
    told = waved().hit("decode-0", "of-the-other", "symptom").go(1).hit("prefill-0", "own", "symptom")
    assert order == signatures(wedging(told.fatal(fatal) if fatal else told))


@pytest.mark.parametrize(
    ("fatal", "told"),
    [
        pytest.param(
            ("prefill-1",),
            ["the wedged side is prefill, and of 2 such workers the log of prefill-1 tells of it"],
            id="one",
        ),
        pytest.param(("prefill-0", "prefill-1"), ["the wedged side is prefill"], id="both"),
    ],
)
def test_of_several_workers_the_one_that_logged_the_fatal_line_is_named(fatal, told):
    run = waved(nodes=TWO_PREFILLS, paths=(ev.Path(id="routed", kind="routed", nodes=TWO_PREFILLS),))
    for node in fatal:
        run.fatal(node)
    assert told == [reason for reason in wedging(run).reasons if reason.startswith("the wedged side")]


def test_the_only_worker_of_its_side_needs_no_naming():
    assert "the wedged side is prefill" in wedging(waved().fatal()).reasons


def test_a_symptom_is_no_cause_unless_somebody_upstream_says_so():
    def told(**more: str) -> tuple[bool, list[str]]:
        verdict = wedging(waved().hit("decode-0", "gave-up", "timeout", title="decode gave up", **more))
        return verdict.causes[0].symptom, [text for text in verdict.reasons if "decode gave up" in text]

    assert (True, []) == told()
    likely = "likely cause on the decode side: decode gave up (example/engine#2)"
    assert (False, [likely]) == told(upstream="example/engine#2")
