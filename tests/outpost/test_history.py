"""What a command prints at first may be its log's past: which lines of it are no evidence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from chaos.outpost.history import Now, Past
from chaos.outpost.lines import Lines
from chaos.outpost.scan import Scanner

BEGAN = datetime(2026, 6, 27, 10, 16, 12, tzinfo=UTC)
HOUR_S = 3600


def ns(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000


class Text:
    """One text of a command, read four seconds after the run began on a host of some zone."""

    def __init__(self, tz_s: float = 0, began: datetime = BEGAN, last: tuple[str, int] = ("", 0)) -> None:
        self.past = Past(ns(began), last)
        self.now = Now(ns(began + timedelta(seconds=4)), int(tz_s))
        self.start()

    def start(self) -> None:
        self.lines = Lines(Scanner([(r"thread-\d+ died", "", "thread-")]))
        self.past.again()

    def news(self, *lines: str, opening: bool = True) -> list[str]:
        block = "".join(line + "\n" for line in lines).encode()
        hits = self.lines.take(block)
        return self._said(self.past.read(block, hits, self.lines.date, self.now, opening=opening))

    def settled(self) -> list[str]:
        return self._said(self.past.settle(past=self.past.begins))

    def _said(self, hits: list) -> list[str]:
        return [hit.found.line.decode().rpartition("] ")[2] for hit in hits]


def stamped(form: str, after_s: float, tz_s: float, text: str) -> str:
    return f"[{BEGAN + timedelta(seconds=after_s + tz_s):{form}}] {text}"


@pytest.mark.parametrize("tz_h", [0, 2, -7, 5.75])
@pytest.mark.parametrize(
    "form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S,250", "%m%d %H:%M:%S"]
)
@pytest.mark.parametrize("utc", [False, True])
def test_lines_stamped_before_the_run_and_what_follows_them_unstamped_are_past(
    tz_h: float, form: str, utc: bool
) -> None:
    text = Text(tz_h * HOUR_S)
    zone_s = 0 if utc else tz_h * HOUR_S
    assert ["thread-4 died", "thread-5 died", "thread-6 died"] == text.news(
        stamped(form, -9 * HOUR_S, zone_s, "thread-1 died"),
        stamped(form, -5, zone_s, "fine"),
        "thread-2 died",
        stamped(form, -5, zone_s, "thread-3 died"),
        stamped(form, -2, zone_s, "thread-4 died"),  # a logger may hold it back so long
        stamped(form, 3, zone_s, "thread-5 died"),
        "thread-6 died",
    )
    assert "known lines older than the run, or told before: 3" == text.past.note


@pytest.mark.parametrize("zone", ["Z", "+00:00"])
def test_a_zone_in_the_stamp_is_the_one_that_counts(zone: str) -> None:
    text = Text(-7 * HOUR_S)  # there the first would be of the future if it were local time
    assert ["thread-2 died"] == text.news(
        f"2026-06-27T10:16:02{zone} thread-1 died] thread-1 died", f"2026-06-27T10:16:12{zone} ] thread-2 died"
    )
    assert [] == text.news("2026-06-27T03:16:14Z ] thread-1 died")  # local time would be now
    assert [] == Text().news("2026-06-27T19:16:02+09:00 ] thread-1 died")
    assert [] == Text().news("2026-06-27T03:16:02-0700 ] thread-1 died")
    assert ["thread-1 died"] == Text().news("2026-06-27T03:16:12-0700 ] thread-1 died")


def test_what_is_stamped_in_the_future_is_not_past() -> None:
    ahead = stamped("%Y-%m-%d %H:%M:%S", 0, 9 * HOUR_S, "thread-1 died")
    assert ["thread-1 died"] == Text().news(ahead)


def test_a_year_that_is_left_out_is_the_last_one_that_fits() -> None:
    began = datetime(2027, 1, 1, 0, 0, 0, tzinfo=UTC)
    text = Text(began=began)
    assert ["thread-2 died", "thread-3 died"] == text.news(
        "I1231 23:59:50 ] thread-1 died", "I1231 23:59:58 ] thread-2 died", "I0101 00:00:01 ] thread-3 died"
    )
    ahead = Text(2 * HOUR_S, began=datetime(2026, 12, 31, 23, 0, 0, tzinfo=UTC))
    assert ["thread-2 died"] == ahead.news("I0101 00:59:50 ] thread-1 died", "I0101 01:00:01 ] thread-2 died")


def test_what_comes_after_the_opening_is_never_past() -> None:
    text = Text()
    old = stamped("%Y-%m-%d %H:%M:%S", -7 * HOUR_S, 0, "thread-1 died")  # a container's clock in another zone
    assert ["thread-1 died", "thread-2 died"] == text.news(old, "thread-2 died", opening=False)
    assert "" == text.past.note


def test_lines_that_no_stamp_comes_before_are_past_where_a_past_stamp_comes_after() -> None:
    old, new = (stamped("%Y-%m-%d %H:%M:%S", after_s, 0, "fine") for after_s in (-60, 2))
    for later, news in (((old,), []), ((old, new), []), ((new,), ["thread-1 died"]), ((), ["thread-1 died"])):
        text = Text()
        assert [] == [*text.news("thread-1 died"), *text.news(*later)]
        assert news == text.settled()
        assert 1 - len(news) == text.past.count


def test_a_command_that_is_started_again_brings_only_what_it_had_not_brought() -> None:
    line = "[2026-06-27 10:16:{:02} x] thread-{} died".format
    first = ["thread-0 died", line(13, 1), line(14, 2), "thread-3 died"]
    text = Text()
    assert ["thread-1 died", "thread-2 died", "thread-3 died"] == text.news(*first)
    assert ["thread-0 died"] == text.settled()
    text.start()
    assert [] == text.news(*first[:2])  # it ends again before it got as far
    assert [] == text.settled()
    resumed = Text(last=text.past.last)  # somebody else goes on
    for again in (text, resumed):
        again.start()
        assert ["thread-4 died", "thread-5 died"] == again.news(*first, line(14, 4), line(15, 5))
        assert [] == again.settled()
    assert (2 + 4, 4) == (text.past.count, resumed.past.count)


def test_lines_of_one_second_are_not_told_twice_however_often_they_are_printed_again() -> None:
    second = [f"[2026-06-27 10:16:13 x] thread-{number} died" for number in (1, 2)]
    text = Text()
    assert ["thread-1 died", "thread-2 died"] == text.news("thread-0 died", *second)
    assert ["thread-0 died"] == text.settled()
    for printed in (second[:1], second):
        text.start()
        assert [] == [*text.news("thread-0 died", *printed), *text.settled()]


def test_the_past_of_a_log_by_another_clock_is_not_told_twice() -> None:
    text = Text()
    ahead = [stamped("%Y-%m-%d %H:%M:%S", after_s, 9 * HOUR_S, f"thread-{after_s} died") for after_s in (1, 2, 3)]
    assert ["thread-1 died", "thread-2 died"] == text.news(*ahead[:2])
    text.start()
    assert ["thread-3 died"] == text.news(*ahead)


@pytest.mark.parametrize("stamp", ["2026-13-27 10:16:12", "0027 10:16:12", "2026-00-27 10:16:12"])
def test_a_stamp_that_no_calendar_has_says_nothing(stamp: str) -> None:
    assert ["thread-1 died"] == Text().news(f"{stamp} ] thread-1 died")
