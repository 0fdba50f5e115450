"""Lines that were read long after they were written: a host was lost meanwhile, or the reader was behind."""

from __future__ import annotations

import pytest
from build import FATAL, HANG, Play, faulted, play, waved
from test_own_faults import one_of_two_killed
from test_teardown import well_up_to_the_teardown

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Outcome


def read_late(told: Play, written: float, *, after: float = 0.0, node: str = "decode-0", **more: str) -> Play:
    """A line read `after` now and written at a second of the run; its stamp has milliseconds."""
    fields = {"signature": "aborted", "klass": "abort", "line": "x", **more}
    hit = ev.LogHit(
        t_ns=0, node=node, stream="log", log_time="10:16:12.000", written_ns=told.ns(written), **fields
    )  # fmt: skip
    return told.tell(hit, told.now + after)


@pytest.mark.parametrize(("ago", "aborts"), [(3.0, 0), (-0.2, 1)])
def test_an_abort_that_was_written_before_the_wave_is_not_its_work(ago: float, aborts: int) -> None:
    told = play().load().wave(aborts=0)
    read_late(told, told.now - ago, after=0.5, key="1")
    assert [aborts] == [wave.server_aborts for wave in judge(told.recovered().finish()).waves]


def test_an_abort_that_was_written_before_the_teardown_is_the_waves_also_when_it_is_read_in_it() -> None:
    told = play().load().wave(aborts=0)
    fired = told.now
    told.recovered().phase("teardown").go(1)
    read_late(told, fired + 1, key="1")
    read_late(told, told.now, key="2")
    assert [1] == [wave.server_aborts for wave in judge(told.finish()).waves]


@pytest.mark.parametrize(("written_after", "outcome"), [(1.0, Outcome.HEALTHY), (24.0, Outcome.INCONCLUSIVE)])
def test_how_long_it_has_been_quiet_counts_from_when_an_abort_was_written(
    written_after: float, outcome: Outcome
) -> None:
    told = waved()
    fired = told.now
    told.recovered(24)
    read_late(told, fired + written_after)
    assert outcome == judge(told.go(1).finish()).outcome


@pytest.mark.parametrize(
    ("written_after", "read_after", "outcome"), [(1.0, 8.0, Outcome.HEALTHY), (-8.0, 1.0, Outcome.DAMAGED)]
)
def test_dying_words_are_those_that_were_written_while_we_ended_the_process(
    written_after: float, read_after: float, outcome: Outcome
) -> None:
    told = one_of_two_killed()
    read_late(told, told.now + written_after, after=read_after, node="decode-1", **FATAL)
    assert outcome == judge(told.recovered().finish()).outcome


@pytest.mark.parametrize(("ago", "outcome"), [(5.0, Outcome.DAMAGED), (0.0, Outcome.INCONCLUSIVE)])
def test_a_fatal_line_that_was_written_before_we_hung_up_is_no_doubt(ago: float, outcome: Outcome) -> None:
    told = well_up_to_the_teardown(hung_up=True)
    read_late(told, told.now - ago, after=0.5, node="prefill-0", **FATAL)
    assert outcome == judge(told.go(1).finish()).outcome


def test_a_stamp_in_whole_seconds_tells_no_more_than_that() -> None:
    told = play().load().wave(aborts=0)
    hit = ev.LogHit(
        t_ns=0, node="decode-0", stream="log", signature="aborted", klass="abort", line="x", log_time="10:16:12",
        written_ns=told.ns(told.now - 0.5),
    )  # fmt: skip
    told.tell(hit, told.now + 0.6)
    assert [1] == [wave.server_aborts for wave in judge(told.recovered().finish()).waves]


@pytest.mark.parametrize(("ago", "upstream"), [(3.0, "example/engine#1"), (0.0, "")])
def test_a_line_that_was_written_before_we_sent_anything_is_not_our_doing(ago: float, upstream: str) -> None:
    told = faulted(kind="foreign-frame").fault("prefill-0", "foreign-frame")
    read_late(told, told.now - ago, after=1.0, node="prefill-0", **FATAL)
    told.phase("recovery").reply = HANG
    assert upstream == judge(told.go(45).finish()).causes[0].upstream


def test_causes_come_in_the_order_in_which_they_were_written() -> None:
    told = waved()
    told.hit("decode-0", "second", "symptom", after=1.0)
    read_late(told, told.now + 0.2, after=3.0, signature="first", klass="symptom")
    told.reply = HANG
    assert ["first", "second"] == [cause.signature for cause in judge(told.go(45).finish()).causes]
