"""When a line was written, on our clock: with a zone, without one, and where its stamp cannot be true."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from probe_helpers import Recorder, VirtualClock
from test_probe_scan import SIGNATURES

from chaos.engine.hosts import Here
from chaos.engine.probes.follow import Clocks, LogSource, News
from chaos.engine.probes.logs import LogProbe
from chaos.engine.probes.written import Written
from chaos.model.events import LogHit
from chaos.model.target import LogFrom

READ = datetime(2026, 6, 27, 10, 16, 12, tzinfo=UTC)
OFFSET_NS = 500_000_000_000
SINCE_NS = 1_500_000_000_000
"""On our clock the run began at 1500 s; at READ it is 1560 s."""


def clocks(tz_h: float = 0.0, wall: datetime = READ) -> Clocks:
    return Clocks(mono_ns=1_060_000_000_000, wall_ns=int(wall.timestamp()) * 1_000_000_000, tz_s=int(tz_h * 3600))


def at(stamp: str, *, tz_h: float = 0.0, wall: datetime = READ) -> float | None:
    """Seconds of the run at which it was written."""
    written_ns = Written(SINCE_NS).at(stamp, clocks(tz_h, wall), OFFSET_NS)
    return None if written_ns is None else (written_ns - SINCE_NS) / 1e9


@pytest.mark.parametrize("tz_h", [0, 2, -7, 5.75])
@pytest.mark.parametrize("ago_s", [0, 1, 59])
def test_stamps_are_local_time_utc_or_what_their_zone_says(tz_h: float, ago_s: int) -> None:
    written = READ - timedelta(seconds=ago_s)
    local = written + timedelta(hours=tz_h)
    assert 60 - ago_s == at(f"{local:%Y-%m-%d %H:%M:%S}", tz_h=tz_h)
    assert 60 - ago_s == at(f"{written:%Y-%m-%dT%H:%M:%S}", tz_h=tz_h)  # a router's, and hours off if it were local
    assert 60 - ago_s == at(f"{written:%Y-%m-%dT%H:%M:%S}Z", tz_h=tz_h)
    assert 60 - ago_s == at(f"{written + timedelta(hours=9):%Y-%m-%dT%H:%M:%S}+09:00", tz_h=tz_h)


def test_fractions_count_and_a_year_that_is_left_out_is_found() -> None:
    assert 59.25 == at("2026-06-27 10:16:11.250")
    assert 59.25 == at("0627 10:16:11.250000")
    turn = datetime(2027, 1, 1, 0, 0, 3, tzinfo=UTC)
    assert 56 == at("1231 23:59:59", wall=turn)
    assert 60 == at("0101 02:00:03", tz_h=2, wall=datetime(2027, 1, 1, 0, 0, 3, tzinfo=UTC))
    assert 60 == at("0101 00:00:03", tz_h=2, wall=datetime(2026, 12, 31, 22, 0, 3, tzinfo=UTC))


@pytest.mark.parametrize(
    "stamp",
    ["2026-06-27 10:16:14", "2026-06-27 10:15:08", "2026-06-27 11:00:00", "2026-06-26 10:16:12", "2026-02-31 10:16:12"],
)
def test_what_is_of_the_future_or_of_before_the_cursor_is_not_believed(stamp: str) -> None:
    assert at(stamp) is None


def test_a_zone_that_was_found_holds_for_a_line_that_both_would_fit() -> None:
    written = Written(0)  # following for hours
    assert 1_560 == (written.at("2026-06-27 10:16:12", clocks(-7.0), OFFSET_NS) or 0) / 1e9  # UTC: local is the future
    late = Written(-100_000 * 1_000_000_000)
    late.at("2026-06-27 10:16:12", clocks(2.0), OFFSET_NS)
    utc = Written(-100_000 * 1_000_000_000)
    utc.at("2026-06-27 10:16:12", clocks(-7.0), OFFSET_NS)
    both = "2026-06-27 03:16:12"  # local time now, or UTC of seven hours ago
    assert 1_560 - 7 * 3600 == (utc.at(both, clocks(-7.0), OFFSET_NS) or 0) / 1e9
    assert 1_560 == (Written(-100_000 * 1_000_000_000).at(both, clocks(-7.0), OFFSET_NS) or 0) / 1e9


def test_a_hit_says_when_it_was_written_only_where_its_own_line_is_stamped() -> None:
    emit, clock = Recorder(), VirtualClock(start_s=1560.0)
    log = LogFrom(file="/nowhere")
    host = Here()
    host.offset_ns = OFFSET_NS  # type: ignore[misc]
    probe = LogProbe(
        [
            LogSource(
                node="n", stream="log", log=log, host=host, signatures=tuple(SIGNATURES), cursors={}, since_ns=SINCE_NS
            )
        ],
        emit=emit,
        clock=clock,
    )
    told = {
        "source": 0,
        "hits": [[0, "x", 0, "", "2026-06-27 10:16:02", dated, 1] for dated in (True, False)],
        "at": list(map(int, (clocks().mono_ns, clocks().wall_ns, 0))),
    }
    probe._take(probe._feeds[0], __import__("msgspec").json.decode(json.dumps(told), type=News))
    stamped, bare = emit.of(LogHit)
    assert (1550.0, 1551.0) == (stamped.written_ns / 1e9, stamped.by_ns / 1e9)  # the stamp is cut to a second
    assert (None, 1560.0) == (bare.written_ns, bare.by_ns / 1e9)


@pytest.mark.parametrize(
    ("log_time", "by_s"), [("10:16:02", 3.0), ("10:16:02.25", 2.01), ("10:16:02,250", 2.001), ("", 3.0)]
)
def test_the_latest_moment_of_writing_is_the_end_of_what_its_stamp_covers(log_time: str, by_s: float) -> None:
    hit = LogHit(
        t_ns=9_000_000_000, node="n", stream="log", signature="s", klass="abort", line="x", log_time=log_time,
        written_ns=2_000_000_000,
    )  # fmt: skip
    assert by_s == hit.by_ns / 1e9
