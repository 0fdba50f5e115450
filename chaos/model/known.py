"""The names that packs define, so that a scenario or target that uses them can be checked against them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chaos.model.pack import Pack
    from chaos.model.target import Target


@dataclass(frozen=True, slots=True)
class Known:
    """Canonical gauges, all canonical metrics, the timeouts of each pack, and which packs can abort a request.

    `aborting` is None where it is not known which packs there will be.
    """

    gauges: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    timeouts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    aborting: frozenset[str] | None = None

    def on(self, target: Target) -> Known:
        """What is left of it on a target, where only its own packs count."""
        used = {target.engine, target.router_engine}
        return replace(self, aborting=None if self.aborting is None else self.aborting & used)

    @classmethod
    def of(cls, packs: Iterable[Pack]) -> Known:
        """What these packs define together."""
        packs = list(packs)
        metrics = [metric for pack in packs for metric in pack.metrics]
        return cls(
            gauges=frozenset(metric.name for metric in metrics if metric.kind == "gauge"),
            metrics=frozenset(metric.name for metric in metrics),
            timeouts={pack.name: frozenset(timeout.name for timeout in pack.timeouts) for pack in packs},
            aborting=frozenset(pack.name for pack in packs if pack.endpoints.abort),
        )
