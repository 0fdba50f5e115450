"""What the stream `follow` of a host is asked for and what it tells (`chaos/outpost/follow.py`), typed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from chaos.engine.probes.literals import required_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chaos.engine.hosts import Host
    from chaos.model.pack import Signature
    from chaos.model.target import LogFrom

Cursors = dict[str, dict[str, Any] | None]


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A known line, or the last of `count` of them."""

    known: int
    text: str
    offset: int
    key: str
    log_time: str
    dated: bool
    count: int


class Range(msgspec.Struct, frozen=True, array_like=True):
    """A range of a text that was read, and how many bytes behind it were lost; one that `ends` is joined by nothing."""

    start: int
    end: int
    lines: int
    lost: int
    note: str
    ends: bool


class Clocks(msgspec.Struct, frozen=True, array_like=True):
    """A host's clocks at one moment."""

    mono_ns: int
    wall_ns: int
    tz_s: int


class News(msgspec.Struct, frozen=True):
    """What a look at one text of one source brought; one with `looked` alone is a sign of life."""

    source: int = -1
    text: int = 0
    hits: tuple[Line, ...] = ()
    counted: tuple[Line, ...] = ()
    ranges: tuple[Range, ...] = ()
    gap: str = ""
    blind: str = ""
    whole: bool = False
    cursor: dict[str, Any] | None = None
    at: Clocks | None = None
    looked: Clocks | None = None


class LogLook(msgspec.Struct, frozen=True):
    """What `log.probe` says of a source: why it cannot be read now (empty: it can), and where it ends."""

    why: str
    cursors: Cursors


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """A log of a node, where it is, and the signatures that its lines may match.

    `cursors` say where it ended before the run did anything, at `since_ns` of our clock; without them that is when
    following begins.
    """

    node: str
    stream: str
    log: LogFrom
    host: Host
    signatures: tuple[Signature, ...]
    cursors: Mapping[str, dict[str, Any] | None] = field(default_factory=dict)
    since_ns: int | None = None


def text_name(stream: str, text: int) -> str:
    """What a text of a log is called in the journal: by number, for a file's name may tell of its host."""
    return f"{stream}/{text}" if text else stream


def stream_of(name: str) -> str:
    """The log that a text belongs to."""
    return name.partition("/")[0]


def ordered(source: LogSource, cursors: Mapping[str, dict[str, Any] | None]) -> dict[str, Any]:
    """A source as a host is asked to follow it."""
    return {"node": source.node, "cursors": dict(cursors), **asked(source.log)}


def asked(log: LogFrom) -> dict[str, str]:
    """What a target says about a log, as a host is told of it."""
    ((kind, what),) = log.model_dump(exclude_none=True).items()
    return {"kind": kind, "what": what}


def known_lines(signatures: Iterable[Signature]) -> list[tuple[str, str, str]]:
    """What a host needs of signatures to find their lines."""
    return [(one.pattern, one.key, required_literal(one.pattern) or "") for one in signatures]
