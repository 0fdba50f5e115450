"""Statistics against values from the literature and by hand, and laws that any such statistics obey."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chaos.judge.stats import can_tell, rate, rate_words, slower, survival
from chaos.model.outcomes import Answer


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (0, 20, 0.0, 1 - 0.05 ** (1 / 20)),  # the open side alone: 1 - 0.05^(1/n), the "rule of three" made exact
        (20, 20, 0.05 ** (1 / 20), 1.0),
        (1, 10, 0.0025286, 0.4450161),  # Clopper and Pearson, two-sided
        (5, 10, 0.1870860, 0.8129140),
        (3, 100, 0.0062298, 0.0851766),
    ],
)
def test_an_interval_is_the_exact_one(hits: int, of: int, low: float, high: float) -> None:
    found = rate(hits, of)
    assert found is not None
    assert (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6)) == (found.low, found.high)


def test_trying_until_the_first_hit_has_the_interval_of_the_number_of_tries() -> None:
    found = rate(1, 10, until_first=True)
    assert found is not None
    assert pytest.approx(0.025) == 1 - (1 - found.low) ** 10  # so early, or earlier
    assert pytest.approx(0.025) == (1 - found.high) ** 9  # so late, or later
    assert rate(0, 10) == rate(0, 10, until_first=True)
    assert rate(1, 1) == rate(1, 1, until_first=True)


def test_nothing_tried_tells_nothing_and_nonsense_is_refused() -> None:
    assert rate(0, 0) is None
    for hits, of in ((3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="of"):
            rate(hits, of)
    with pytest.raises(ValueError, match="first"):
        rate(2, 5, until_first=True)


@pytest.mark.parametrize(
    ("hits", "of", "words"),
    [
        (0, 20, "0 of 20 wedged: below 14 % at 95 %"),
        (20, 20, "20 of 20 wedged: above 86 % at 95 %"),
        (5, 10, "5 of 10 wedged: 50 %, 19 % to 81 % at 95 %"),
        (0, 1240, "0 of 1240 wedged: below 0.24 % at 95 %"),
    ],
)
def test_a_rate_in_words(hits: int, of: int, words: str) -> None:
    assert words == rate_words(rate(hits, of), "wedged")


COUNTS = st.integers(1, 300).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of)))


@settings(max_examples=60, deadline=None)
@given(COUNTS)
def test_an_interval_holds_the_rate_and_mirrors_when_hits_and_misses_are_swapped(counts: tuple[int, int]) -> None:
    hits, of = counts
    found, mirrored = rate(hits, of), rate(of - hits, of)
    assert found is not None
    assert mirrored is not None
    assert 0 <= found.low <= hits / of <= found.high <= 1
    assert (pytest.approx(1 - mirrored.high), pytest.approx(1 - mirrored.low)) == (found.low, found.high)


@settings(max_examples=60, deadline=None)
@given(COUNTS)
def test_more_hits_never_lower_a_bound_and_more_misses_never_raise_one(counts: tuple[int, int]) -> None:
    hits, of = counts
    assume(0 < hits < of)
    found, more, less = rate(hits, of), rate(hits + 1, of + 1), rate(hits, of + 1)
    assert found is not None
    assert more is not None
    assert less is not None
    assert more.low >= found.low
    assert less.high <= found.high


# ---------------------------------------------------------------------------------------------- survival


def test_survivors_are_censored_not_counted_as_broken_where_they_stopped() -> None:
    found = survival("aborts", [2, 4], [4, 10, 10])
    assert found is not None
    assert ((2, 4), (4, 10, 10)) == (found.broke_after, found.survived)
    assert found.median is None  # 4/5 * 3/4 = 0.6 still serve
    without = survival("aborts", [2, 4, 4, 10, 10], [])
    assert without is not None
    assert 4.0 == without.median


def test_the_median_is_where_half_no_longer_serve() -> None:
    found = survival("waves", [1, 2, 3], [3])
    assert found is not None
    assert 2.0 == found.median


def test_trials_that_were_never_hit_survived_nothing() -> None:
    assert survival("waves", [], [0, 0]) is None
    only_survivors = survival("waves", [], [0, 2])
    assert only_survivors is not None
    assert only_survivors.median is None


# ---------------------------------------------------------------------------------------------- the rank test


def compared(fault: list[float], control: list[float]) -> Answer:
    return slower("time to first token", fault, control, by=0.25, alpha=0.025).slower


def test_every_run_slower_than_every_other_is_the_exact_permutation_p() -> None:
    found = slower("x", [20, 21, 22, 23], [10, 11, 12, 13], by=0.25, alpha=0.025)
    assert pytest.approx(1 / 70) == found.p
    assert (1.0, pytest.approx(21.5 / 11.5)) == (found.above, found.ratio)
    assert Answer.YES == found.slower


def test_a_difference_too_small_to_matter_is_no_degradation_however_certain() -> None:
    assert Answer.NO == compared([11.0, 11.1, 11.2, 11.3, 11.4], [10.0, 10.1, 10.2, 10.3, 10.4])


def test_a_large_difference_that_may_be_chance_is_unknown() -> None:
    assert Answer.UNKNOWN == compared([30, 9, 31, 8], [10, 12, 11, 40])


def test_too_few_runs_can_tell_neither_yes_nor_no() -> None:
    assert Answer.UNKNOWN == compared([20, 21, 22], [10, 11, 12])
    assert Answer.UNKNOWN == compared([10, 11, 12], [10, 11, 12])
    assert (False, True) == (can_tell(3, 3, 0.025), can_tell(4, 4, 0.025))


RUNS = st.lists(st.floats(1, 1000), min_size=1, max_size=7)


@settings(max_examples=80, deadline=None)
@given(RUNS, RUNS, st.floats(0.1, 10))
def test_a_faster_clock_changes_nothing_and_both_arms_are_never_slower_than_each_other(
    fault: list[float], control: list[float], scale: float
) -> None:
    assume(len({*fault, *control}) == len(fault) + len(control))
    told = compared(fault, control)
    assume(len({x * scale for x in (*fault, *control)}) == len(fault) + len(control))
    scaled = slower("x", [x * scale for x in fault], [x * scale for x in control], by=0.25, alpha=0.025)
    assert pytest.approx(slower("x", fault, control, by=0.25, alpha=0.025).p) == scaled.p
    assert {told, compared(control, fault)} != {Answer.YES}


def test_scipy_is_not_imported_before_it_is_used() -> None:
    code = "import sys, chaos.judge.stats, chaos.judge; sys.exit('scipy' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
