"""What every event has, and what its parts are made of."""

from __future__ import annotations

from typing import Annotated

import msgspec

LONGEST = 1e12
Span = Annotated[float, msgspec.Meta(ge=-LONGEST, le=LONGEST)]
"""Seconds or milliseconds. No run lasts for 30 years: a line of a journal that says more is damaged."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an event."""


class Event(Record, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """The envelope.

    `seq` is given by the journal, gapless from 1 (a gap is doubt). `src` says who observed it (`harness`,
    `agent:GROUP`, `probe:NAME`); `src_t_ns` is that observer's own stamp on `clock`. `cycle` counts from 1 once
    load starts; 0 is the baseline.
    """

    t_ns: int
    seq: int = 0
    src: str = "harness"
    src_t_ns: int | None = None
    clock: str = "harness"
    cycle: int = 0
