"""A folder of collected evidence to the events of a journal. What is wrong with it is said all at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chaos import __version__, library
from chaos.autopsy.clock import ImportClock
from chaos.autopsy.deployment import deployment_seen, nodes_of, plan_of
from chaos.autopsy.logs import MAX_BYTES, LogRead, LogText, NoStamps, read_log
from chaos.autopsy.notes import HEARTBEAT, deeds_of, events_of
from chaos.autopsy.places import Places
from chaos.autopsy.queues import Queues
from chaos.autopsy.scrapes import MAX_BYTES as MAX_SCRAPE_BYTES
from chaos.autopsy.scrapes import read_scrape
from chaos.engine.probes.exposition import BadExposition
from chaos.engine.probes.stamps import Stamps
from chaos.model import events as ev
from chaos.model.errors import InvalidFile, UserError
from chaos.model.loading import parse_observations
from chaos.model.moments import parse_moment, parse_offset, utc_text
from chaos.model.yamlpos import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chaos.library import Loaded
    from chaos.model.errors import Problem
    from chaos.model.observations import Observations
    from chaos.model.pack import Pack

FILE = "observations.yaml"
ORIGIN = "imported"


@dataclass(frozen=True, slots=True)
class Imported:
    """The journal's events in order and numbered, and what reading the folder brought."""

    told: Observations
    text: bytes  # the observations file as it was read
    events: tuple[ev.AnyEvent, ...]
    logs: tuple[LogRead, ...]
    packs: Mapping[str, Loaded[Pack]]
    utc: str  # when the watch began


def import_folder(folder: Path) -> Imported:
    """Read a folder. Raises `InvalidFile` with every problem, or `UserError` when there is nothing to read."""
    path = folder / FILE
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder", hint="pdchaos autopsy --init DIR makes one to start from")
    if not path.exists():
        raise UserError(f"{folder} holds no {FILE}", hint=f"pdchaos autopsy --init {folder} writes one to start from")
    text = library.read(path)
    told = parse_observations(text, str(path), known=library.known())
    packs = {name: library.load_pack(name) for name in {told.deployment.engine, told.deployment.router_engine}}
    reader = _Reader(
        folder, told, {name: pack.value for name, pack in packs.items()}, Places(parse_yaml(text, str(path)))
    )
    reader.read()
    if reader.problems:
        raise InvalidFile(reader.problems)
    events = _journal(told, reader, packs)
    return Imported(told, text, events, tuple(reader.logs), packs, utc_text(reader.clock.since_ns))


class _Reader:
    """Reads the files that the observations name, and collects what is wrong with them."""

    def __init__(self, folder: Path, told: Observations, packs: Mapping[str, Pack], places: Places) -> None:
        self.told = told
        self.packs = packs
        self.clock = ImportClock.of(told)
        self.events: list[ev.AnyEvent] = []
        self.logs: list[LogRead] = []
        self.problems: list[Problem] = []
        self._folder = folder
        self._places = places
        self._nodes = {node.id: node for node in nodes_of(told, packs)}

    def read(self) -> None:
        for index, log in enumerate(self.told.logs):
            body = self._body("logs", index, log.file, MAX_BYTES)
            if body is not None:
                self._log(index, body)
        for index, scrape in enumerate(self.told.scrapes):
            body = self._body("scrapes", index, scrape.file, MAX_SCRAPE_BYTES)
            if body is not None:
                self._scrape(index, body)

    def _body(self, section: str, index: int, name: str, limit: int) -> bytes | None:
        try:
            return library.read(self._folder / Path(name), limit)
        except UserError as error:
            self.problems.append(self._places.problem(section, index, "file", error.message))
            return None

    def _log(self, index: int, body: bytes) -> None:
        spec = self.told.logs[index]
        node = self._nodes[spec.node]
        until_ns = None if spec.until is None else parse_moment(spec.until, self.told.date)
        stamps = Stamps(parse_offset(spec.utc_offset), self.clock.since_ns)
        text = LogText(node, spec.file, self.packs[node.engine], body, stamps, until_ns)
        try:
            events, read = read_log(text, self.clock)
        except NoStamps:
            hint = "join it with the log it belongs to, in the order of things"
            self._complain("logs", index, "not one line of it has a stamp, so nothing in it can be dated", hint)
            return
        if read.outside and not read.lines:
            hint = "is its utc_offset right?"
            self._complain("logs", index, f"none of its {read.outside} lines is from the time watched", hint)
        self.events += events
        self.logs.append(read)

    def _scrape(self, index: int, body: bytes) -> None:
        spec = self.told.scrapes[index]
        node = self._nodes[spec.node]
        try:
            found = read_scrape(spec, node, self.packs[node.engine], body, self.clock)
        except BadExposition as error:
            self._complain("scrapes", index, f"is no Prometheus text: {error}")
            return
        if not any(event.samples for event in found if isinstance(event, ev.Scrape)):
            hint = "is it another node's, or does `where` pick nothing?"
            self._complain(
                "scrapes", index, f"holds no metric that the pack {node.engine} knows of a {node.role}", hint
            )
        self.events += found

    def _complain(self, section: str, index: int, message: str, hint: str = "") -> None:
        self.problems.append(self._places.problem(section, index, "file", message, hint))


def _journal(told: Observations, reader: _Reader, packs: Mapping[str, Loaded[Pack]]) -> tuple[ev.AnyEvent, ...]:
    """Everything in order, numbered, between a beginning and an end as a run of ours has them."""
    clock = reader.clock
    deeds = deeds_of(told, clock)
    events = [*reader.events, *events_of(told, deeds, clock)]
    nodes = nodes_of(told, reader.packs, _observed(events))
    seen = deployment_seen(told, nodes, reader.packs, [log.told for log in reader.logs if log.told], clock.begin)
    if told.heartbeats:
        use = ev.MetricUse(name=HEARTBEAT, kind="gauge", use="heartbeat")
        seen = msgspec.structs.replace(seen, metrics=(*seen.metrics, use))
    started = ev.RunStarted(
        t_ns=clock.begin,
        src="import",
        format=ev.FORMAT,
        run_id=ORIGIN,
        tool_version=__version__,
        utc=utc_text(clock.since_ns),
        target=f"{ORIGIN} evidence",
        plan=plan_of(told, deeds, seen, reader.packs),
        packs=tuple(
            ev.PackUsed(name=name, engine=pack.value.name, sha256=pack.sha256) for name, pack in sorted(packs.items())
        ),
        origin="imported",
    )
    ended = ev.RunEnded(t_ns=clock.end + 2, src="import", status="completed", cleanup="clean")
    return tuple(_numbered([started, seen, *sorted(events, key=lambda event: event.t_ns), ended]))


def _numbered(events: Sequence[ev.AnyEvent]) -> Iterator[ev.AnyEvent]:
    """The events with their numbers, each in the cycle that was going on; a census with the queues of its moment."""
    cycle = 0
    queues = Queues()
    for seq, event in enumerate(events, 1):
        match event:
            case ev.DeploymentSeen():
                queues.learn(event)
            case ev.PhaseEntered():
                cycle = max(cycle, event.cycle)
            case ev.Scrape() | ev.LevelsTold():
                queues.take(event)
            case _:
                pass
        if isinstance(event, ev.WaveCensus):
            event = msgspec.structs.replace(event, queues=queues.at(event.t_ns))  # noqa: PLW2901 - the same event, whole
        yield msgspec.structs.replace(event, seq=seq, cycle=event.cycle or cycle)


def _observed(events: list[ev.AnyEvent]) -> dict[str, set[str]]:
    """Which probes of a run of ours would have seen what was collected of each node."""
    seen: dict[str, set[str]] = {}
    for event in events:
        match event:
            case ev.LogCovered():
                seen.setdefault(event.node, set()).add("log")
            case ev.Scrape():
                seen.setdefault(event.node, set()).add("metrics")
            case ev.Liveness():
                seen.setdefault(event.node, set()).add("liveness")
            case ev.ProcessSeen():
                seen.setdefault(event.node, set()).add("process")
            case _:
                pass
    return seen
