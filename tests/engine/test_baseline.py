"""A target is warm when enough canaries in a row passed on every path, as the judge will count them."""

from __future__ import annotations

import pytest

from chaos.engine.baseline import Baseline
from chaos.model import events as ev


def passed(req: str, path: str = "routed") -> ev.RequestEnded:
    return ev.RequestEnded(t_ns=0, req=req, kind="canary", path=path)


def failed(req: str) -> ev.RequestEnded:
    return ev.RequestEnded(t_ns=0, req=req, kind="canary", path="routed", error="status", detail="no worker")


def overdue(req: str) -> ev.RequestOverdue:
    return ev.RequestOverdue(t_ns=0, req=req, kind="canary", path="routed", age_s=6.0, deadline_s=6.0)


@pytest.mark.parametrize(
    ("events", "row"),
    [
        ([passed("1"), passed("2")], 2),
        ([passed("1"), failed("2"), passed("3")], 1),
        ([passed("1"), overdue("2"), passed("3")], 1),
        ([overdue("1"), passed("1"), passed("2")], 1),  # late is no pass, although it ended well
        ([passed("1"), passed("p", path="other")], 1),
    ],
)
def test_a_row_is_broken_by_whatever_is_no_pass_in_time(events: list[ev.AnyEvent], row: int) -> None:
    baseline = Baseline(10.0)
    for event in events:
        baseline.on_event(event)
    assert (True, False) == (baseline.warm({"routed": row}), baseline.warm({"routed": row + 1}))


def test_every_path_must_be_warm_and_the_cold_ones_are_named() -> None:
    baseline = Baseline(10.0)
    baseline.on_event(passed("1"))
    baseline.on_event(failed("2"))
    assert ["routed", "other"] == baseline.cold({"routed": 1, "other": 1})
    assert "status no worker" == baseline.last_error
