"""What must have been measured for a network fault to count as made, and as gone."""

from __future__ import annotations

import pytest

from chaos.engine.faults.network.chance import fits, telling
from chaos.engine.faults.network.cut import PartitionKind, Passing, PortBlockKind, Ports
from chaos.engine.faults.network.degraded import DelayKind, LossKind, Lost, RateKind, Speed
from chaos.engine.faults.network.kinds import Counted
from chaos.engine.faults.network.line import Arrived, Flow, Knocks
from chaos.model.network import Delay, Loss, Partition, PortBlock, RateLimit

ENDS = {"where": {"role": "decode"}, "from": {"role": "prefill"}}
TOWARDS = {"where": {"role": "decode"}, "to": {"role": "prefill"}}
OPEN, REFUSED, SILENT = Knocks(open=1), Knocks(refused=1), Knocks(silent=1)
MET = Counted({"dropped-in": 9, "dropped-out": 9, "seen-in": 99, "bytes": 10**5, "packets": 9, "held_up": 3})
NONE = Counted()
SHUT = "nothing passed before either, so nothing shows that it is cut off"
OTHER = "that is not the share that was asked for"


def passing(inward: int | None, outward: int | None, calls: Knocks, called: Knocks | None) -> Passing:
    told = [None if heard is None else Arrived(20, heard) for heard in (inward, outward)]
    return Passing(told[0], told[1], calls, called)


ALL = passing(20, 20, OPEN, REFUSED)
NOTHING = passing(0, 0, SILENT, SILENT)


@pytest.mark.parametrize(
    ("direction", "before", "now", "counted", "why"),
    [
        ("both", ALL, NOTHING, MET, ""),
        ("both", ALL, passing(1, 0, SILENT, SILENT), MET, "datagrams still come in"),
        ("both", ALL, passing(0, 3, SILENT, SILENT), MET, "datagrams still come out"),
        ("both", ALL, passing(0, 0, SILENT, OPEN), MET, "connections are still answered"),
        ("both", ALL, passing(0, 0, REFUSED, SILENT), MET, "connections are still answered"),
        ("both", ALL, NOTHING, NONE, "no packet met the rules"),
        ("both", NOTHING, NOTHING, MET, SHUT),
        ("both", passing(0, 0, OPEN, None), NOTHING, MET, ""),
        ("in", ALL, passing(0, 20, SILENT, SILENT), MET, ""),
        ("in", ALL, NOTHING, MET, "datagrams do not come out either"),
        ("out", ALL, passing(20, 0, SILENT, SILENT), MET, ""),
        ("out", ALL, NOTHING, MET, "datagrams do not come in either"),
        ("out", ALL, passing(20, 0, SILENT, SILENT), Counted({"dropped-in": 9}), "no packet met the rules"),
        ("in", passing(0, 20, SILENT, SILENT), passing(0, 20, SILENT, SILENT), MET, SHUT),
        ("both", passing(None, None, OPEN, None), passing(None, None, SILENT, None), MET, ""),
    ],
)  # fmt: skip
def test_a_partition_is_shown_by_what_passed_before_and_does_not_now(direction, before, now, counted, why) -> None:
    told = PartitionKind(Partition(**ENDS, direction=direction)).shown(before, now, counted)
    assert (not why, why) == (told.ok, told.why)


@pytest.mark.parametrize(
    ("before", "now", "ok"),
    [
        (ALL, ALL, True),
        (ALL, passing(20, 0, OPEN, OPEN), False),
        (ALL, passing(20, 20, SILENT, SILENT), False),
        (ALL, passing(20, 20, REFUSED, SILENT), True),  # the engine has ended meanwhile, and that is its own affair
        (NOTHING, NOTHING, True),
        (passing(None, None, OPEN, None), passing(None, None, SILENT, None), False),
    ],
)
def test_a_partition_is_gone_when_all_passes_that_passed_before(before, now, ok) -> None:
    assert ok == PartitionKind(Partition(**ENDS)).cleared(before, now).ok


@pytest.mark.parametrize(
    ("before", "now", "counted", "why"),
    [
        (Ports(OPEN, REFUSED), Ports(SILENT, OPEN), MET, ""),
        (Ports(OPEN, REFUSED), Ports(SILENT, OPEN), NONE, "no packet met the rule"),
        (Ports(SILENT, OPEN), Ports(SILENT, OPEN), MET, "the port did not answer before either"),
        (Ports(OPEN, OPEN), Ports(REFUSED, OPEN), MET, "the port still answers"),
        (Ports(OPEN, OPEN), Ports(SILENT, SILENT), MET, "another port does not answer either"),
        (Ports(None, None), Ports(None, None), MET, ""),
        (Ports(None, None), Ports(None, None), NONE, "no packet met the rule"),
    ],
)
def test_a_blocked_port_is_shown_by_its_silence_beside_one_that_answers(before, now, counted, why) -> None:
    kind = PortBlockKind(PortBlock(**ENDS, port=7))
    told = kind.shown(before, now, counted)
    assert (not why, why) == (told.ok, told.why)
    assert kind.cleared(before, before).ok
    assert kind.cleared(before, now).ok == (before.port is None or not before.port.answered or now.port is REFUSED)


def lost(heard: int, sent: int = 200) -> Lost:
    return Lost(Arrived(sent, heard), None)


@pytest.mark.parametrize(
    ("before", "now", "counted", "why"),
    [
        (lost(200), lost(180), MET, ""),
        (lost(200), lost(200), MET, OTHER),
        (lost(200), lost(120), MET, OTHER),
        (lost(200), lost(180), NONE, "no packet met the rule"),
        (lost(190), lost(170), MET, "the network lost packets before, too"),
        (Lost(None, None), Lost(None, OPEN), Counted({"seen-in": 500, "dropped-in": 50}), ""),
        (Lost(None, None), Lost(None, OPEN), Counted({"seen-in": 500, "dropped-in": 0}), OTHER),
        (Lost(None, None), Lost(None, OPEN), Counted({"seen-in": 20, "dropped-in": 2}), "too few packets met the rule"),
        (lost(0), lost(0), Counted({"seen-in": 500, "dropped-in": 50}), ""),
    ],
)  # fmt: skip
def test_a_loss_is_shown_by_a_share_that_chance_allows(before, now, counted, why) -> None:
    told = LossKind(Loss(**ENDS, percent=10.0)).shown(before, now, counted)
    assert (not why, why) == (told.ok, told.why)


def test_a_loss_is_gone_when_as_few_are_lost_as_before() -> None:
    kind = LossKind(Loss(**ENDS, percent=10.0))
    assert [True, True, False] == [kind.cleared(lost(200), lost(now)).ok for now in (200, 196, 180)]
    assert kind.cleared(Lost(None, None), Lost(None, None)).ok


def speed(mbit: float) -> Speed:
    return Speed(Flow(bytes=int(mbit * 125_000), seconds=1.0))


@pytest.mark.parametrize(
    ("before", "now", "counted", "why"),
    [
        (speed(500), speed(1), MET, ""),
        (speed(500), speed(1.4), MET, ""),
        (speed(500), speed(2), MET, "that is faster than was asked for"),
        (speed(1), speed(1), MET, "it was no faster before"),
        (speed(500), Speed(Flow()), MET, "nothing went through it"),
        (speed(500), speed(1), NONE, "nothing went through it"),
        (Speed(None), Speed(None), MET, ""),
        (Speed(None), Speed(None), NONE, "nothing was held up by it"),
    ],
)
def test_a_rate_is_shown_by_what_arrives_now_and_arrived_before(before, now, counted, why) -> None:
    kind = RateKind(RateLimit(**TOWARDS, rate=1e6))
    told = kind.shown(before, now, counted)
    assert (not why, why) == (told.ok, told.why)
    assert [True, False] == [kind.cleared(speed(500), now).ok for now in (speed(400), speed(1))]


def took(*ms: float) -> Knocks:
    return Knocks(open=len(ms), ms=ms)


@pytest.mark.parametrize(
    ("before", "now", "counted", "why"),
    [
        (took(1, 1, 2), took(99, 101, 300), MET, ""),
        (took(1, 1, 2), took(81, 82, 83), MET, ""),
        (took(1, 1, 2), took(20, 21, 300), MET, "that is less than was asked for"),
        (took(1, 1, 2), took(99, 101, 300), NONE, "no packet was delayed"),
        (SILENT, SILENT, MET, "nothing shows how long packets take"),
    ],
)
def test_a_delay_is_shown_by_how_long_connections_take(before, now, counted, why) -> None:
    told = DelayKind(Delay(**TOWARDS, delay=0.1, jitter=0.01)).shown(before, now, counted)
    assert (not why, why) == (told.ok, told.why)


def test_a_delay_is_gone_when_connections_take_as_long_as_before() -> None:
    kind = DelayKind(Delay(**TOWARDS, delay=0.1))
    assert [True, False, False] == [kind.cleared(took(1), now).ok for now in (took(3), took(90), SILENT)]


def test_chance_has_bounds() -> None:
    assert [False, True, True, True, False] == [fits(lost, 200, 0.1) for lost in (2, 5, 20, 40, 45)]
    assert [True, False] == [fits(0, 2, 0.1), fits(0, 200, 0.1)]
    assert fits(200, 200, 0.99)
    for share in (0.01, 0.1, 0.5):
        assert not fits(0, telling(share), share)
        assert telling(share) <= 1200
