"""Words, numbers and the removal of what may not be shown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.model.outcomes import Answer
from chaos.model.verdict import PathVerdict
from chaos.render import words
from chaos.render.thin import even, thin, unbroken


@pytest.mark.parametrize(
    ("expected", "seconds"),
    [("0.24 s", 0.24), ("9.99 s", 9.99), ("10.0 s", 9.996), ("62.0 s", 62), ("1m 40s", 99.99), ("6m 12s", 372.4),
     ("2h 05m", 7500), ("1h 00m", 3599.9), ("-1.00 s", -1)],
)  # fmt: skip
def test_a_duration_reads_like_one(expected, seconds):
    assert expected == words.span(seconds)


@pytest.mark.parametrize(
    ("expected", "value"),
    [("43", 43.0), ("0", 0.0), ("0.25", 0.25), ("12.5", 12.5), ("4213", 4213.4), ("12\u00a0345", 12345.0),
     ("nan", float("nan"))],
)  # fmt: skip
def test_a_number_reads_like_one(expected, value):
    assert expected == words.number(value)


def test_a_census_is_told_in_the_order_of_a_requests_life():
    assert words.census({"thinking": 1, "waiting": 43, "streaming": 17}) == "waiting 43 · streaming 17 · thinking 1"
    assert words.census({"waiting": 0}) == "nobody"
    assert words.census({}) == "census unknown"


def test_escapes_controls_and_direction_changes_are_dropped():
    assert words.clean("\x1b[31mred\x1b[0m \x1b]0;title\x07x\x00\x08\u202ey\x9bz\ud800") == "red xyz"
    assert words.one_line("a\nb\t c\r\nd") == "a b c d"
    assert words.clean("abcdef", 4) == "abc…"


@settings(deadline=None)  # machines starve
@given(st.text())
def test_no_text_keeps_a_control_character(text):
    assert not [c for c in words.one_line(text) if ord(c) < 32 or 0x7F <= ord(c) < 0xA0]
    assert words.ascii_only(words.one_line(text)).isascii()


@settings(deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=500), st.integers(8, 64))
def test_thinning_keeps_both_ends_and_both_extremes(values, most):
    xs, ys = thin(list(range(len(values))), values, most)
    assert (0, len(values) - 1) == (xs[0], xs[-1])
    assert (min(values), max(values)) == (min(ys), max(ys))
    assert len(xs) <= most + 4
    assert sorted(xs) == xs


def test_a_gauge_that_does_not_move_needs_two_points():
    assert thin(list(range(1000)), [5.0] * 1000, 100) == ([0, 999], [5.0, 5.0])


@settings(deadline=None)
@given(st.lists(st.integers(), max_size=300), st.integers(1, 40))
def test_an_even_choice_is_bounded_and_in_order(items, most):
    chosen = even(items, most)
    assert len(chosen) == min(len(items), most)
    if most > 1 and items:
        assert (items[0], items[-1]) == (chosen[0], chosen[-1])


def test_a_line_is_broken_where_nobody_looked():
    assert [(0, 3), (3, 5)] == unbroken([0.0, 0.5, 1.0, 20.0, 20.5], 3.0)
    assert [(0, 3)] == unbroken([0.0, 30.0, 60.0], 3.0)
    assert [(0, 0)] == unbroken([], 3.0)


@pytest.mark.parametrize(
    ("expected", "after"), [("no canary begun after the last fault", ""), ("no canary begun since x", "since x")]
)
def test_a_path_that_nobody_asked_says_since_when(expected, after):
    assert expected == words.path_words(PathVerdict(path="routed", serves=Answer.UNKNOWN, after=after))


@pytest.mark.parametrize(
    ("path", "look"),
    [
        (PathVerdict(path="routed", serves=Answer.YES), ("serves", "good")),
        (PathVerdict(path="routed", serves=Answer.YES, tardy=True), ("serves, too late", "warn")),
        (PathVerdict(path="routed", serves=Answer.NO), ("does NOT serve", "bad")),
        (PathVerdict(path="routed", serves=Answer.UNKNOWN), ("unknown", "warn")),
    ],
)
def test_a_path_that_serves_too_late_is_neither_called_well_nor_dead(path: PathVerdict, look: tuple[str, str]) -> None:
    found = words.path_look(path)
    assert look == (found.word, found.tone)
