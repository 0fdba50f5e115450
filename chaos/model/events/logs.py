"""Lines of logs that a pack knows, and how much of the logs was read."""

from __future__ import annotations

import re
from typing import Literal

from chaos.model.events.envelope import Event

HitClass = Literal["fatal", "abort", "timeout", "symptom", "crash", "restart", "benign", "traceback"]


class LogHit(Event, frozen=True, kw_only=True, omit_defaults=True, tag="log.hit"):
    """A log line that a pack's signature knows, raw; only the first lines per signature are kept, the rest counted.

    `t_ns` is when it was read, which may be long after it was written: the host was lost, the reader was behind.
    """

    node: str
    stream: str
    signature: str  # id in the pack
    klass: HitClass
    line: str
    title: str = ""
    offset: int = 0
    count: int = 1
    key: str = ""  # what tells one occurrence from its echo on another rank (a bootstrap room)
    side: str = ""  # prefill | decode | router: where the cause is
    ends: str = ""  # what it ends: "thread" "process" or nothing
    upstream: str = ""
    fixed_in: str = ""
    log_time: str = ""  # the stamp as written, of the line itself or of the nearest one before it
    written_ns: int | None = None  # by its own stamp, on our clock; None: it has none, or nobody can understand it

    @property
    def by_ns(self) -> int:
        """The latest moment at which it can have been written. Never after it was read."""
        if self.written_ns is None:
            return self.t_ns
        fraction = re.search(r"[.,](\d{1,9})", self.log_time)
        covers_ns = int(10 ** (9 - len(fraction[1]))) if fraction else 1_000_000_000
        return min(self.t_ns, self.written_ns + covers_ns)  # a stamp is cut, not rounded


class LogCovered(Event, frozen=True, kw_only=True, omit_defaults=True, tag="log.covered"):
    """The byte range of one log that was really read; `lost` bytes were not (rotation, truncation)."""

    node: str
    stream: str
    start: int
    end: int
    lost: int = 0
    lines: int = 0
    note: str = ""
    unparsed: int = 0  # lines whose form nobody knows: neither dated, nor part of a traceback, nor known to a pack
