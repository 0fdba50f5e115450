"""A small Prometheus text exposition with the engine's habits.

prometheus_client in multiprocess mode, as the engine runs it, exports nothing for a child that was never touched: a
family without children is absent altogether, HELP line included; a histogram lists sum, buckets, count; labels are
sorted; there are no `_created` series (read off the 0.5.14 samples).
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `scope` names the set of constant labels its children carry."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    scope: str
    help: str
    buckets: tuple[float, ...] = ()


@dataclass(slots=True)
class _Histogram:
    counts: list[int]
    total: float = 0.0
    count: int = 0


@dataclass(slots=True)
class _Children:
    family: Family
    constant: Labels
    values: dict[Labels, float] = field(default_factory=dict)
    histograms: dict[Labels, _Histogram] = field(default_factory=dict)


def number(value: float) -> str:
    """A float as prometheus_client prints it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(float(value))
    # 1000000.0 becomes 1e+06, the way Go prints it
    digits = text.index(".") if "." in text and "e" not in text else 0
    if digits > 6 and value > 0:
        mantissa = f"{text[0]}.{text[1:digits]}{text[digits + 1 :]}".rstrip("0.")
        return f"{mantissa}e+0{digits - 1}"
    return text


def _labels(*groups: Iterable[tuple[str, str]]) -> str:
    pairs = sorted(pair for group in groups for pair in group)
    if not pairs:
        return ""
    return "{" + ",".join(f'{key}="{_escape(value)}"' for key, value in pairs) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Exposition:
    """Values of a fixed set of families; a child exists from its first touch on."""

    def __init__(self, families: Iterable[Family], scopes: Mapping[str, Mapping[str, str]]) -> None:
        self._families = {family.name: _Children(family, tuple(scopes[family.scope].items())) for family in families}

    def scope(self, name: str) -> str:
        """The scope of a family."""
        return self._families[name].family.scope

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        self._families[name].values[tuple(labels.items())] = value

    def inc(self, name: str, /, **labels: str) -> None:
        """Add one to a counter or a gauge."""
        self.add(name, 1.0, **labels)

    def add(self, name: str, by: float, /, **labels: str) -> None:
        """Add to a counter or a gauge."""
        values = self._families[name].values
        key = tuple(labels.items())
        values[key] = values.get(key, 0.0) + by

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add an observation to a histogram."""
        children = self._families[name]
        key = tuple(labels.items())
        histogram = children.histograms.get(key)
        if histogram is None:
            histogram = children.histograms[key] = _Histogram([0] * (len(children.family.buckets) + 1))
        histogram.counts[bisect.bisect_left(children.family.buckets, value)] += 1
        histogram.total += value
        histogram.count += 1

    def render(self) -> str:
        """The whole page."""
        return "".join(self._render_family(children) for children in self._families.values())

    @staticmethod
    def _render_family(children: _Children) -> str:
        family = children.family
        if not children.values and not children.histograms:
            return ""
        out = [f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"]
        for own, value in children.values.items():
            out.append(f"{family.name}{_labels(children.constant, own)} {number(value)}\n")
        for own, histogram in children.histograms.items():
            plain = _labels(children.constant, own)
            out.append(f"{family.name}_sum{plain} {number(histogram.total)}\n")
            below = 0
            for bound, count in zip((*family.buckets, math.inf), histogram.counts, strict=True):
                below += count
                labels = _labels(children.constant, own, (("le", number(bound)),))
                out.append(f"{family.name}_bucket{labels} {number(below)}\n")
            out.append(f"{family.name}_count{plain} {number(histogram.count)}\n")
        return "".join(out)
