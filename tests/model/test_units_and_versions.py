"""Units and versions, and what Python code may give where a file must give a unit."""

from __future__ import annotations

import pytest

from chaos.model.events import Bound
from chaos.model.scenario import Canary
from chaos.model.units import (
    bounds,
    format_bandwidth,
    parse_bandwidth,
    parse_comparison,
    parse_duration,
    parse_percent,
    parse_rate,
    told_bandwidth,
)
from chaos.model.versions import in_range, version_key


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("25s", 25.0), ("300ms", 0.3), ("2m", 120.0), ("2min", 120.0), ("1.5h", 5400.0), ("0s", 0.0)],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert pytest.approx(seconds) == parse_duration(text)


@pytest.mark.parametrize(
    "text", ["25", "s", "-1s", "1 s", "1S", "1d", "25s\n", "٣s", "1e3s", "9" * 400 + "s", "", None, [], True, 5]
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)


def test_python_code_gives_seconds_as_a_float() -> None:
    assert 0.5 == Canary(every=0.5).every


def test_a_rate_is_read_per_second() -> None:
    assert (20.0, 1.5) == (parse_rate("20/s"), parse_rate("90/m"))
    for bad in ("0/s", "0.0/m", "20", "20/d", "-1/s"):
        with pytest.raises(ValueError, match="must be a rate"):
            parse_rate(bad)


def test_a_bandwidth_is_read_in_bits_per_second_and_written_as_short_as_it_can_be() -> None:
    texts = ("1mbit", "1.5gbit", "64kbit", "0.5kbit", "1500.5kbit")
    assert (1e6, 1.5e9, 64e3, 500.0, 1500500.0) == tuple(map(parse_bandwidth, texts))
    for text in texts:
        assert parse_bandwidth(text) == parse_bandwidth(format_bandwidth(parse_bandwidth(text)))
    assert ("1mbit", "64kbit") == (format_bandwidth(1e6), format_bandwidth(64e3))
    assert ("1 Mbit/s", "64 kbit/s", "2.5 Gbit/s") == tuple(map(told_bandwidth, (1e6, 64e3, 2.5e9)))
    for bad in ("1", 1, "1mbps", "1 mbit", "1Mbit", "mbit", "-1mbit", None):
        with pytest.raises(ValueError, match="must be a rate such as 1mbit"):
            parse_bandwidth(bad)


def test_a_percentage_leaves_something_and_takes_something() -> None:
    assert (10.0, 99.99, 1.0) == tuple(map(parse_percent, ("10%", "99.99%", "1%")))
    for bad in ("0%", "0.5%", "100%", "10", 10, "10 %", None):
        with pytest.raises(ValueError, match="must be a percentage from 1% to"):
            parse_percent(bad)


def test_a_comparison_becomes_a_bound() -> None:
    assert (">=", 20.0) == parse_comparison(">= 20")
    assert ("==", 0.5) == parse_comparison(" ==0.5 ")
    assert (Bound(name="a", op="<", value=3.0), Bound(name="b", op=">", value=0.0)) == bounds({"a": "< 3", "b": ">0"})
    for bad in ("20", "=> 20", ">= -1", ">= x", ">=", 20, None):
        with pytest.raises(ValueError, match="must be a comparison"):
            parse_comparison(bad)


def test_versions_are_ordered_with_their_post_and_pre_releases() -> None:
    ordered = ["0.5.9", "0.5.11", "0.5.12", "0.5.12.post1", "0.5.13rc1", "0.5.13", "0.5.14", "0.6", "1.0"]
    keys = [version_key(text) for text in ordered]
    assert sorted(keys) == keys  # type: ignore[type-var]
    assert version_key("0.6") == version_key("v0.6.0+cu12")
    assert version_key("main") is None


def test_a_range_includes_its_ends_and_an_unknown_version_is_in_every_range() -> None:
    assert in_range("0.5.12", since="0.5.12", until="0.5.12")
    assert not in_range("0.5.11", since="0.5.12")
    assert not in_range("0.5.12.post1", until="0.5.12")
    assert in_range("", since="0.5.12", until="0.5.12")
    assert in_range("0.5.99")
