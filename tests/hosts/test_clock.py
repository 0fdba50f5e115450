"""A host's clock against ours: what the pings allow to be said, and what contradicts what was said."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from chaos.engine.hosts.clock import DRIFT, JUMP_NS, HostClock, Ping, measured

MS = 1_000_000
CLOCK = HostClock(offset_ns=0, uncertainty_ns=MS, wall_offset_ns=-7 * MS, tz_s=3600, at_ns=0)


def ping(sent_ns: int, there_ns: int, back_ns: int, *, ahead_ns: int) -> Ping:
    """A ping to a host whose clock is so far ahead of ours; it took so long there, and so long back."""
    mono_ns = sent_ns + there_ns + ahead_ns
    return Ping(sent_ns, {"mono_ns": mono_ns, "wall_ns": mono_ns + 5 * MS, "tz_s": 3600}, sent_ns + there_ns + back_ns)


ways = st.integers(0, 2_000_000_000)


@given(pings=st.lists(st.tuples(ways, ways), min_size=1), ahead_ns=st.integers(-(10**18), 10**18))
def test_the_truth_is_within_the_uncertainty_however_uneven_the_ways(
    pings: list[tuple[int, int]], ahead_ns: int
) -> None:
    clock = measured(ping(n * MS, there, back, ahead_ns=ahead_ns) for n, (there, back) in enumerate(pings))
    assert abs(clock.offset_ns + ahead_ns) <= clock.uncertainty_ns
    assert min(there + back for there, back in pings) // 2 + 1 == clock.uncertainty_ns
    assert clock.offset_ns - 5 * MS == clock.wall_offset_ns


def test_clocks_that_part_slowly_agree_and_one_that_jumped_does_not() -> None:
    minute_ns = 60 * 10**9
    slow = replace(CLOCK, offset_ns=int(DRIFT * minute_ns) + MS, at_ns=minute_ns)
    assert CLOCK.agrees(slow)
    jumped = replace(CLOCK, offset_ns=int(DRIFT * minute_ns) + 3 * MS + JUMP_NS, at_ns=minute_ns)
    assert not CLOCK.agrees(jumped)


def test_a_good_measurement_is_kept_over_a_worse_one_until_it_is_old() -> None:
    worse = replace(CLOCK, uncertainty_ns=40 * MS, at_ns=60 * 10**9)
    assert CLOCK is CLOCK.better(worse)
    late = replace(worse, at_ns=3600 * 10**9)
    assert late is CLOCK.better(late)


def test_a_wall_clock_that_was_set_is_believed_at_once() -> None:
    worse = replace(CLOCK, uncertainty_ns=40 * MS, at_ns=10**9)
    for later in (replace(worse, wall_offset_ns=10**9), replace(worse, tz_s=0)):
        assert later is CLOCK.better(later)
