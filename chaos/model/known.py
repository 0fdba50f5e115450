"""The names that packs define, so that a scenario or target that uses them can be checked against them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chaos.model.pack import Pack


@dataclass(frozen=True, slots=True)
class Known:
    """Canonical gauges, all canonical metrics, and the timeouts of each pack."""

    gauges: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    timeouts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, packs: Iterable[Pack]) -> Known:
        """What these packs define together."""
        packs = list(packs)
        metrics = [metric for pack in packs for metric in pack.metrics]
        return cls(
            gauges=frozenset(metric.name for metric in metrics if metric.kind == "gauge"),
            metrics=frozenset(metric.name for metric in metrics),
            timeouts={pack.name: frozenset(timeout.name for timeout in pack.timeouts) for pack in packs},
        )
