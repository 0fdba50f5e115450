"""Prometheus texts that somebody saved: one node's wanted metrics, picked from a file that may hold several nodes'."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chaos.engine.probes.exposition import Exposition
from chaos.engine.probes.knowledge import wanted_metrics
from chaos.model import events as ev

if TYPE_CHECKING:
    from chaos.autopsy.clock import ImportClock
    from chaos.model.observations import GaugeNote, ScrapeFile
    from chaos.model.pack import Pack

MAX_BYTES = 32 << 20
SERVER_LABELS = frozenset({"instance", "pod", "job"})
"""What a Prometheus server adds: it names the process, and not what that serves."""


def read_scrape(spec: ScrapeFile, node: ev.Node, pack: Pack, body: bytes, clock: ImportClock) -> list[ev.AnyEvent]:
    """The reading, and the floors that it shows where nothing had been asked for a while. Raises `BadExposition`."""
    wanted = [
        replace(metric, where=(*metric.where, *spec.where.items()))
        for metric in wanted_metrics(pack, node.role, node.version)
    ]
    reading = Exposition(wanted, frozenset(pack.instance_labels) | SERVER_LABELS).read(body)
    scrape = ev.Scrape(
        t_ns=clock.at(spec.at),
        src="import:scrapes",
        node=node.id,
        ok=True,
        samples=reading.samples,
        zero=reading.zero,
    )
    if spec.quiet_for is None:
        return [scrape]
    return [scrape, _told(spec.at, node.id, reading.samples, spec.quiet_for, clock)]


def read_note(note: GaugeNote, clock: ImportClock) -> ev.LevelsTold:
    """Levels that somebody read off."""
    samples = tuple(ev.Sample(name=name, labels="", value=value) for name, value in sorted(note.values.items()))
    return _told(note.at, note.node, samples, note.quiet_for, clock)


def _told(
    at: str, node: str, samples: tuple[ev.Sample, ...], quiet_s: float | None, clock: ImportClock
) -> ev.LevelsTold:
    return ev.LevelsTold(t_ns=clock.at(at), src="import:notes", node=node, by="hand", samples=samples, quiet_s=quiet_s)
