"""What a watching person wants to know of a run while it runs: a fold over its events in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeVar

from chaos.model import events as ev
from chaos.render.metrics import Uses
from chaos.render.record import SILENT_NS
from chaos.render.words import finite

MOST_KEYS = 64  # per table: paths, nodes, groups, gauges; a fleet larger than a screen is not shown whole
MOST_OPEN = 512  # open canaries whose deadline we remember
MOST_WAVES = 50
FRESH_NS = 10_000_000_000  # metrics are read every second, and a reading may take five

K = TypeVar("K")
V = TypeVar("V")
Colour = Literal["none", "green", "red"]


@dataclass(slots=True)
class PathWatch:
    """The canaries of one path so far. `colour` is what the last sign said; it is no judgement."""

    last_s: float | None = None
    last_error: str = ""
    in_a_row: int = 0
    passed: int = 0
    failed: int = 0
    overdue: dict[str, int] = field(default_factory=dict)  # open request past its deadline -> when it was sent (ns)
    colour: Colour = "none"


@dataclass(slots=True)
class WaveSeen:
    """A wave that was fired, or a fault of nodes that was applied."""

    ordinal: int
    name: str
    how: str
    at_ns: int
    sessions: int
    sockets: int
    phases: dict[str, int]
    nodes: tuple[str, ...] = ()
    undone_ns: int | None = None


@dataclass(slots=True)
class Watch:
    """The fold. Everything in it is for showing; the verdict is computed from the journal alone."""

    scenario: str = ""
    target: str = ""
    cycles: int = 1
    start_ns: int | None = None
    now_ns: int = 0
    phase: str = "starting"
    phase_ns: int = 0
    cycle: int = 0
    ended: str = ""
    sessions: dict[str, tuple[int, dict[str, int]]] = field(default_factory=dict)  # agent -> when, phase -> sessions
    paths: dict[str, PathWatch] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)  # canary -> when it was sent (ns)
    queues: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)  # node, gauge -> when, worst rank
    liveness: dict[str, str] = field(default_factory=dict)
    aborts: dict[str, int] = field(default_factory=dict)
    planned: dict[str, str] = field(default_factory=dict)  # fault -> what it does
    census: dict[str, dict[str, int]] = field(default_factory=dict)
    waves: list[WaveSeen] = field(default_factory=list)
    waves_fired: int = 0
    hits: dict[str, int] = field(default_factory=dict)  # class -> lines
    last_fatal: ev.LogHit | None = None
    lag_ms: float | None = None
    reference_ok: bool | None = None
    lost: int = 0
    uses: Uses = field(default_factory=Uses)

    def feed(self, event: ev.AnyEvent) -> None:  # noqa: C901, PLR0912 - one case per event
        """Take in one event."""
        self.now_ns = max(self.now_ns, event.t_ns)
        if self.start_ns is None:
            self.start_ns = self.phase_ns = event.t_ns
        self.cycle = max(self.cycle, event.cycle)
        match event:
            case ev.RunStarted():
                self.scenario, self.target, self.cycles = event.plan.scenario, event.target, event.plan.cycles
                self.planned = {fault.id: fault.how for fault in event.plan.faults[:MOST_KEYS]}
            case ev.DeploymentSeen():
                self.uses.learn(event)
                for path in event.paths:
                    if path.examined:
                        self._path(path.id)
            case ev.PhaseEntered():
                self.phase, self.phase_ns = event.phase, event.t_ns
            case ev.RequestStarted() | ev.RequestOverdue() | ev.RequestEnded() if event.kind == "canary":
                self._canary(event)
            case ev.WaveCensus():
                _put(self.census, event.wave, dict(event.phases))
            case ev.WaveFired():
                self._wave(event)
            case ev.FaultStep() if event.nodes and event.ok:
                self._node_fault(event)
            case ev.Scrape():
                self._scrape(event)
            case ev.Liveness():
                status = str(event.status) if event.status is not None else "no answer"
                _put(self.liveness, event.node, status)
            case ev.LogHit():
                self._hit(event)
            case ev.HarnessHealth():
                self._health(event)
            case ev.EvidenceLost():
                self.lost += 1
            case ev.RunEnded():
                self.ended = event.status
            case _:
                pass

    def elapsed_s(self, now_ns: int | None = None) -> float:
        """Seconds since the first event."""
        if self.start_ns is None:
            return 0.0
        return (max(self.now_ns, now_ns or 0) - self.start_ns) / 1e9

    def phases(self) -> dict[str, int]:
        """Sessions by phase over all agents that are still heard of: a killed one cannot take its census back."""
        total: dict[str, int] = {}
        for at_ns, by_phase in self.sessions.values():
            if self.now_ns - at_ns > SILENT_NS:
                continue
            for phase, n in by_phase.items():
                total[phase] = total.get(phase, 0) + n
        return total

    def fresh_queues(self) -> dict[tuple[str, str], float]:
        """The gauges that were read of late: what they were before says nothing of now."""
        return {key: value for key, (at_ns, value) in self.queues.items() if self.now_ns - at_ns <= FRESH_NS}

    def unread_queues(self) -> list[str]:
        """The nodes of which a gauge was read once, and none of late."""
        return sorted({node for node, _ in self.queues} - {node for node, _ in self.fresh_queues()})

    def _path(self, name: str) -> PathWatch | None:
        if name not in self.paths and len(self.paths) < MOST_KEYS:
            self.paths[name] = PathWatch()
        return self.paths.get(name)

    def _canary(self, event: ev.RequestStarted | ev.RequestOverdue | ev.RequestEnded) -> None:
        path = self._path(event.path)
        if path is None:
            return
        match event:
            case ev.RequestStarted():
                _put(self.open, event.req, event.sent_ns or event.t_ns, most=MOST_OPEN)
            case ev.RequestOverdue():
                sent = self.open.get(event.req, event.t_ns - int(finite(event.age_s) * 1e9))
                _put(path.overdue, event.req, sent, most=MOST_OPEN)
                path.in_a_row, path.colour = 0, "red"
            case ev.RequestEnded():
                sent = event.sent_ns or self.open.get(event.req, event.t_ns)
                self.open.pop(event.req, None)
                late = path.overdue.pop(event.req, None) is not None
                path.last_s = ((event.last_ns or event.t_ns) - sent) / 1e9
                path.last_error = event.error
                if late:  # it turned the path red when it became overdue; younger ones may have passed since
                    path.failed += 1
                elif event.ok:
                    path.passed += 1
                    path.in_a_row += 1
                    path.colour = "green"
                else:
                    path.failed += 1
                    path.in_a_row = 0
                    path.colour = "red"

    def _wave(self, event: ev.WaveFired) -> None:
        phases = self.census.get(event.wave, {})
        self._fired(event.wave, event.how, event.ordered_ns, phases, sessions=event.sessions, sockets=event.sockets)

    def _node_fault(self, event: ev.FaultStep) -> None:
        if event.stage == "applied":
            how = self.planned.get(event.fault) or event.kind
            self._fired(event.fault, how, event.t_ns, self.census.get(event.fault, {}), nodes=event.nodes)
        elif event.stage == "reverted":
            for wave in self.waves[::-1]:
                if wave.name == event.fault:
                    wave.undone_ns = event.t_ns
                    break

    def _fired(
        self,
        name: str,
        how: str,
        at_ns: int,
        phases: dict[str, int],
        *,
        sessions: int = 0,
        sockets: int = 0,
        nodes: tuple[str, ...] = (),
    ) -> None:
        self.waves_fired += 1
        self.waves.append(WaveSeen(self.waves_fired, name, how, at_ns, sessions, sockets, phases, nodes))
        del self.waves[:-MOST_WAVES]

    def _scrape(self, event: ev.Scrape) -> None:
        worst: dict[str, float] = {}
        for sample in event.samples:
            if self.uses.of(event.node, sample.name) == "queue":
                worst[sample.name] = max(worst.get(sample.name, sample.value), sample.value)
        for name, value in worst.items():
            _put(self.queues, (event.node, name), (event.t_ns, value))

    def _hit(self, event: ev.LogHit) -> None:
        _put(self.hits, event.klass, self.hits.get(event.klass, 0) + event.count)
        if event.klass == "abort":
            _put(self.aborts, event.node, self.aborts.get(event.node, 0) + event.count)
        if event.klass in ("fatal", "crash"):
            self.last_fatal = event

    def _health(self, event: ev.HarnessHealth) -> None:
        if event.phases:
            _put(self.sessions, event.who, (event.t_ns, dict(event.phases)))
        if event.who == "harness":
            self.lag_ms = event.lag_max_ms
            if event.reference_ok is not None:
                self.reference_ok = event.reference_ok


def _put(table: dict[K, V], key: K, value: V, *, most: int = MOST_KEYS) -> None:
    if key in table or len(table) < most:
        table[key] = value
