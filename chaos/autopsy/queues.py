"""The last known level of every queue, as a census holds it: ranks summed, with its age."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterator


class Queues:
    """Fed in order of time. A scrape, a log and a person name ranks differently, so the last of them speaks alone."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._latest: dict[tuple[str, str], tuple[str, dict[str, tuple[int, float]]]] = {}

    def learn(self, seen: ev.DeploymentSeen) -> None:
        """Which metrics are queues."""
        self._names = frozenset(metric.name for metric in seen.metrics if metric.use == "queue")

    def take(self, event: ev.Scrape | ev.LevelsTold) -> None:
        """Take in one reading."""
        source = "scrape" if isinstance(event, ev.Scrape) else event.by
        for sample in event.samples:
            if sample.name in self._names:
                told, by_rank = self._latest.get((event.node, sample.name), (source, {}))
                by_rank = by_rank if told == source else {}
                by_rank[sample.labels] = (event.t_ns, sample.value)
                self._latest[event.node, sample.name] = (source, by_rank)

    def at(self, at_ns: int) -> tuple[ev.QueueReading, ...]:
        """What is known at a moment."""
        return tuple(self._readings(at_ns))

    def _readings(self, at_ns: int) -> Iterator[ev.QueueReading]:
        for (node, name), (_, by_rank) in sorted(self._latest.items()):
            oldest_ns = min(read_ns for read_ns, _ in by_rank.values())
            value = sum(value for _, value in by_rank.values())
            yield ev.QueueReading(node=node, name=name, value=value, age_s=(at_ns - oldest_ns) / 1e9)
