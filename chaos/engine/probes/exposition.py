"""Reads wanted families out of a Prometheus exposition, fast: a scrape must not stall the loop for a token's time.

Only the wanted names are searched for (`bytes.find`); label sets are parsed once and remembered. The whole text is not
validated: an engine's exposition is 200 kB and prometheus_client's parser needs 43 ms for it. What is read agrees
with that parser (tested), including escapes, timestamps and exemplars.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from chaos.model.events import MetricPurpose, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_LABEL_SETS = 8192
"""Remembered label sets per node; an engine has some hundred, a runaway label must not fill our memory."""

_LABEL = re.compile(rb'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|(?=\}))', re.DOTALL)
_FIRST_LINE = re.compile(rb"\s*(#|[a-zA-Z_:][a-zA-Z0-9_:]*\s*(\{.*\})?\s+\S+)")
_ESCAPE = re.compile(r'\\([\\n"])')
_FAMILY_SUFFIXES = (b"_total", b"_count", b"_created")


class BadExposition(ValueError):
    """The text is no complete Prometheus exposition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A metric under its canonical name. The first of `exposed` that the text has is the one that is read."""

    name: str
    kind: Literal["gauge", "counter"]
    use: MetricPurpose
    exposed: tuple[str, ...]
    where: tuple[tuple[str, str], ...] = ()  # labels a sample must carry


@dataclass(frozen=True, slots=True)
class Reading:
    """What one exposition says of the wanted metrics."""

    samples: tuple[Sample, ...]
    zero: tuple[str, ...]


class Exposition:
    """A reader for one node's wanted metrics."""

    def __init__(self, wanted: Sequence[Wanted], left_out: frozenset[str] = frozenset()) -> None:
        """Labels that are `left_out` are not told, nor do they tell series apart."""
        self._wanted = tuple(wanted)
        self._left_out = left_out
        self._labels: dict[bytes, tuple[str, frozenset[tuple[str, str]]]] = {}

    def read(self, body: bytes) -> Reading:
        """The wanted samples of `body`; raises BadExposition for what is no exposition or was cut.

        Samples without a finite value are left out, so their metric is unknown. A counter that is announced (HELP or
        TYPE) without any sample has never counted: zero. A gauge like that is unknown.
        """
        if not body.strip():
            raise BadExposition("empty")
        if not body.endswith(b"\n"):
            raise BadExposition("cut: the last line has no end")
        if _FIRST_LINE.match(body) is None:
            raise BadExposition(f"not an exposition: {body[:80]!r}")
        text = b"\n" + body
        samples: list[Sample] = []
        zero: list[str] = []
        for wanted in self._wanted:
            found, announced = self._find(wanted, text)
            samples += found
            if announced and not found and wanted.kind == "counter":
                zero.append(wanted.name)
        return Reading(tuple(samples), tuple(zero))

    def _find(self, wanted: Wanted, text: bytes) -> tuple[list[Sample], bool]:
        """Samples under the first exposed name that is there at all; else whether one is announced without any."""
        for exposed in wanted.exposed:
            name = exposed.encode()
            lines = list(_lines(text, name))
            if lines:
                return [sample for line in lines if (sample := self._sample(wanted, line)) is not None], False
            if _announced(text, name):
                return [], True
        return [], False

    def _sample(self, wanted: Wanted, line: bytes) -> Sample | None:
        """One sample from `{labels} value [timestamp] [# exemplar]`; None when filtered out or not finite."""
        line = line.strip()
        labels, rest = b"", line
        if line.startswith(b"{"):
            end = _labels_end(line)
            labels, rest = line[: end + 1], line[end + 1 :]
        shown, pairs = self._parsed(labels)
        if not pairs.issuperset(wanted.where):
            return None
        fields = rest.partition(b"#")[0].split()
        try:
            value = float(fields[0])
            if len(fields) > 2:
                raise BadExposition(f"too many fields: {line[:200]!r}")
            [float(field) for field in fields[1:]]
        except (IndexError, ValueError) as error:
            raise BadExposition(f"no value for {wanted.name}: {line[:200]!r}") from error
        return Sample(name=wanted.name, labels=shown, value=value) if math.isfinite(value) else None

    def _parsed(self, raw: bytes) -> tuple[str, frozenset[tuple[str, str]]]:
        known = self._labels.get(raw)
        if known is None:
            pairs = _pairs(raw) if raw else {}
            told = sorted(pairs.keys() - self._left_out)
            known = (",".join(f"{key}={pairs[key]}" for key in told), frozenset(pairs.items()))
            if len(self._labels) >= MAX_LABEL_SETS:
                self._labels.clear()
            self._labels[raw] = known
        return known


def _lines(text: bytes, name: bytes) -> Iterator[bytes]:
    """What follows `name` on each line that is a sample of it."""
    needle = b"\n" + name
    at = text.find(needle)
    while at >= 0:
        start = at + len(needle)
        end = text.find(b"\n", start)
        if text[start : start + 1] in (b"{", b" ", b"\t"):
            yield text[start:end]
        at = text.find(needle, end)


def _announced(text: bytes, name: bytes) -> bool:
    families = [name, *(name.removesuffix(suffix) for suffix in _FAMILY_SUFFIXES if name.endswith(suffix))]
    return any(
        text.find(b"\n# " + word + b" " + family + b" ") >= 0 for family in families for word in (b"TYPE", b"HELP")
    )


def _labels_end(line: bytes) -> int:
    """Where the label set that `line` begins with ends. A label value may hold braces and hashes."""
    if b"#" not in line:
        end = line.rfind(b"}")
        if end < 0:
            raise BadExposition(f"labels without an end: {line[:200]!r}")
        return end
    at = 1
    while (match := _LABEL.match(line, at)) is not None:
        at = match.end()
    end = line.find(b"}", at)
    if end < 0 or line[at:end].strip():
        raise BadExposition(f"malformed labels: {line[:200]!r}")
    return end


def _pairs(raw: bytes) -> dict[str, str]:
    pairs: dict[str, str] = {}
    at, end = 1, len(raw) - 1
    while (match := _LABEL.match(raw, at)) is not None:
        at = match.end()
        pairs[match[1].decode()] = _ESCAPE.sub(_unescaped, match[2].decode(errors="replace"))
    if raw[at:end].strip():
        raise BadExposition(f"malformed labels: {raw[:200]!r}")
    return pairs


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
