"""One pass over a run's events that keeps what the report shows; nothing is judged here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from chaos.model import events as ev
from chaos.render.metrics import Uses
from chaos.render.story import Moment, Story
from chaos.render.words import finite

MOST_MOMENTS = 2000
MOST_HIT_LINES = 20_000
SILENT_NS = 3_000_000_000  # agents report every half second: one silent for longer has no sessions to show

CanaryState = Literal["in time", "late", "failed", "never finished"]
STATES: tuple[CanaryState, ...] = ("in time", "late", "failed", "never finished")


@dataclass(slots=True)
class Canary:
    """One fresh request of ours."""

    path: str
    sent_ns: int
    seq: int
    end_ns: int | None = None
    overdue: bool = False
    ok: bool = False
    hung_up: bool = False  # by us, after the last look
    error: str = ""

    @property
    def state(self) -> CanaryState:
        """How it ended; one that never did has no latency, only an age."""
        if self.end_ns is None or self.hung_up:
            return "never finished"
        if not self.ok:
            return "failed"
        return "late" if self.overdue else "in time"

    def took_s(self, until_ns: int) -> float:
        """Latency, or the age at `until_ns` when it never finished."""
        return max(0.0, ((self.end_ns or until_ns) - self.sent_ns) / 1e9)


@dataclass(frozen=True, slots=True)
class Hit:
    """A log line that a pack knows."""

    t_ns: int
    seq: int
    node: str
    klass: str
    title: str
    line: str
    count: int


@dataclass(frozen=True, slots=True)
class Beat:
    """How we, or one of our agents, were doing."""

    t_ns: int
    lag_ms: float
    reference_ms: float | None
    tokens: int
    phases: dict[str, int]


@dataclass(slots=True)
class Disruption:
    """A fault as it stood: a wave is a moment, a fault of nodes lasts until it was undone or measured to be over."""

    name: str
    cycle: int
    from_ns: int
    until_ns: int
    nodes: tuple[str, ...] = ()  # none: a wave against our own sessions
    stands: bool = False  # not undone yet


SeriesKey = tuple[str, str, str]  # node, canonical name, labels
Points = list[tuple[int, float]]


@dataclass(slots=True)
class Record:
    """Everything the report shows of the events."""

    started: ev.RunStarted | None = None
    ended: ev.RunEnded | None = None
    deployment: ev.DeploymentSeen | None = None
    first_ns: int = 0
    last_ns: int = 0
    events: int = 0
    missing: int = 0
    last_seq: int = 0
    phases: list[tuple[int, str]] = field(default_factory=list)
    canaries: list[Canary] = field(default_factory=list)
    series: dict[SeriesKey, Points] = field(default_factory=dict)
    uses: Uses = field(default_factory=Uses)
    zero: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # node, counter -> when it had never counted
    first_scrape: dict[str, int] = field(default_factory=dict)
    liveness: list[ev.Liveness] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    beats: dict[str, list[Beat]] = field(default_factory=dict)
    disruptions: list[Disruption] = field(default_factory=list)
    processes: list[ev.ProcessSeen] = field(default_factory=list)
    lost: list[ev.EvidenceLost] = field(default_factory=list)
    covered: list[ev.LogCovered] = field(default_factory=list)
    load_ended: list[tuple[int, bool]] = field(default_factory=list)  # when, whether it was a success
    moments: list[Moment] = field(default_factory=list)
    moments_cut: int = 0
    _open: dict[str, Canary] = field(default_factory=dict)
    _story: Story = field(default_factory=Story)

    def at_s(self, t_ns: int) -> float:
        """Seconds since the first event, to the millisecond."""
        return round((t_ns - self.first_ns) / 1e9, 3)

    @property
    def plan(self) -> ev.Plan:
        """The plan; an empty one when the run never said what it meant to do."""
        return self.started.plan if self.started else ev.Plan(scenario="")

    def feed(self, event: ev.AnyEvent) -> None:  # noqa: C901, PLR0912 - one case per event
        """Take in one event."""
        if not self.events:
            self.first_ns = event.t_ns
        self.events += 1
        self.last_ns = max(self.last_ns, event.t_ns)
        if event.seq:
            self.missing += max(0, event.seq - self.last_seq - 1)
            self.last_seq = max(self.last_seq, event.seq)
        for moment in self._story.feed(event):
            if len(self.moments) < MOST_MOMENTS:
                self.moments.append(moment)
            else:
                self.moments_cut += 1
        match event:
            case ev.RequestStarted() | ev.RequestOverdue() | ev.RequestEnded():
                self._request(event)
            case ev.LevelsTold():
                self._levels(event.node, event.samples, event.t_ns)
            case ev.Scrape() | ev.Liveness() | ev.LogHit() | ev.LogCovered() | ev.ProcessSeen() | ev.HarnessHealth():
                self._observation(event)
            case ev.WaveFired():
                self.disruptions.append(Disruption(event.wave, event.cycle, event.ordered_ns, event.ordered_ns))
            case ev.FaultStep() if event.nodes and event.ok:
                self._node_fault(event)
            case ev.PhaseEntered():
                self.phases.append((event.t_ns, event.phase))
            case ev.EvidenceLost():
                self.lost.append(event)
            case ev.RunStarted():
                self.started = self.started or event
            case ev.DeploymentSeen():
                self.uses.learn(event)
                self.deployment = self.deployment or event
            case ev.RunEnded():
                self.ended = event
            case _:
                pass

    def _request(self, event: ev.RequestStarted | ev.RequestOverdue | ev.RequestEnded) -> None:
        if event.kind == "load":
            if isinstance(event, ev.RequestEnded):
                self.load_ended.append((event.t_ns, event.ok))
            return
        if event.kind != "canary":
            return
        match event:
            case ev.RequestStarted():
                canary = Canary(event.path, event.sent_ns or event.t_ns, event.seq)
                self.canaries.append(canary)
                self._open[event.req] = canary
            case ev.RequestOverdue():
                if event.req in self._open:
                    self._open[event.req].overdue = True
            case ev.RequestEnded():
                fresh = Canary(event.path, event.sent_ns or event.t_ns, event.seq)  # its start was lost
                canary = self._open.pop(event.req, fresh)
                if canary.end_ns is None and event.sent_ns is not None:
                    canary.sent_ns = event.sent_ns
                canary.end_ns = event.last_ns or event.t_ns
                canary.hung_up = event.ended_by == "harness"
                canary.ok, canary.error = event.ok, event.error or ("" if event.ok else f"ended by {event.ended_by}")

    def _levels(self, node: str, samples: tuple[ev.Sample, ...], t_ns: int) -> None:
        for sample in samples:
            if self.uses.of(node, sample.name) != "info" and finite(sample.value, 1e18) == sample.value:
                self.series.setdefault((node, sample.name, sample.labels), []).append((t_ns, sample.value))

    def _node_fault(self, event: ev.FaultStep) -> None:
        if event.stage == "applied":
            stands = event.reversal != "none"
            self.disruptions.append(
                Disruption(event.fault, event.cycle, event.t_ns, event.t_ns, event.nodes, stands=stands)
            )
        for fault in self.disruptions:
            if (fault.name, fault.cycle) == (event.fault, event.cycle) and event.stage in ("verified", "reverted"):
                fault.until_ns = max(fault.until_ns, event.t_ns)
                fault.stands = fault.stands and event.stage != "reverted"

    def _observation(
        self,
        event: ev.Scrape | ev.Liveness | ev.LogHit | ev.LogCovered | ev.ProcessSeen | ev.HarnessHealth,
    ) -> None:
        match event:
            case ev.Scrape():
                if event.ok:
                    self.first_scrape.setdefault(event.node, event.t_ns)
                for name in event.zero:
                    if self.uses.of(event.node, name) != "info":
                        self.zero.setdefault((event.node, name), []).append(event.t_ns)
                self._levels(event.node, event.samples, event.t_ns)
            case ev.Liveness():
                self.liveness.append(event)
            case ev.LogHit():
                line = event.line[:300] if len(self.hits) < MOST_HIT_LINES else ""
                title = event.title or event.signature
                self.hits.append(Hit(event.by_ns, event.seq, event.node, event.klass, title, line, event.count))
            case ev.LogCovered():
                self.covered.append(event)
            case ev.ProcessSeen():
                self.processes.append(event)
            case ev.HarnessHealth():
                reference = None if event.reference_ms is None else finite(event.reference_ms)
                beat = Beat(event.t_ns, finite(event.lag_max_ms), reference, event.tokens, event.phases)
                self.beats.setdefault(event.who, []).append(beat)
