"""Gauges and counters of a node, scraped or told."""

from __future__ import annotations

from typing import Literal

from chaos.model.events.envelope import Event, Record, Span


class Sample(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One sample of a wanted metric under its canonical name; `labels` as scraped, sorted, `k=v` joined by commas."""

    name: str
    labels: str
    value: float


class Scrape(Event, frozen=True, kw_only=True, omit_defaults=True, tag="scrape"):
    """One reading of a node's metrics. A wanted name that is not in `samples` and not in `zero` is unknown."""

    node: str
    ok: bool
    took_ms: Span = 0.0
    samples: tuple[Sample, ...] = ()
    zero: tuple[str, ...] = ()  # families announced by HELP without a sample: counters that never counted
    error: str = ""


class LevelsTold(Event, frozen=True, kw_only=True, omit_defaults=True, tag="levels.told"):
    """Levels that were not scraped: a server wrote them into its own log, or a person read them off.

    Labels name the rank where it is known; a sample without labels speaks for the whole node. A progress counter told
    by a log holds only what that log counted. A heartbeat is the moment (seconds on the journal's clock) at which a
    node's inner loop last gave a sign.
    """

    node: str
    by: Literal["log", "hand"]
    samples: tuple[Sample, ...]
    quiet_s: Span | None = None  # how long nobody had asked anything of the deployment by then; None: not known
