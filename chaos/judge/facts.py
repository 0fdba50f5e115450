"""One pass over the events: what was seen, kept by what it is about. Nothing is decided here.

The same fold serves the verdict (events sorted first) and the run while it watches (events as they come), so nothing
here may depend on more than the order of events about one thing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_SEQ = 1
LARGEST = 2.0**63
"""No count or level of anything is larger: a counter that says so is broken."""


def sound(value: float) -> bool:
    """Whether a sample is a reading at all: engines do write NaN and infinities, and those tell nothing."""
    return math.isfinite(value) and abs(value) < LARGEST


@dataclass(slots=True)
class Canary:
    """One fresh request of our own, from its start to whatever became of it."""

    req: str
    path: str
    begun_ns: int
    seqs: list[int] = field(default_factory=list)
    ended_ns: int | None = None
    ok: bool = False
    overdue: bool = False  # said to be past its deadline while it was open
    ours: bool = False  # ended by us or by a fault of ours
    error: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one metric series."""

    t_ns: int
    value: float
    seq: int


@dataclass(frozen=True, slots=True, order=True)
class Series:
    """A metric of a node with its labels: never summed away before it was looked at."""

    node: str
    name: str
    labels: str


@dataclass(slots=True)
class LoadRequest:
    """A request of a simulated user."""

    path: str
    begun_ns: int
    group: str = ""
    ended_ns: int | None = None
    last_ns: int | None = None  # when its last token came
    tokens: int = 0
    ok: bool = False
    ended_by: str = ""
    error: str = ""
    detail: str = ""
    seq: int = 0  # of its end


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer to a canary or a user, and what its content shows."""

    req: str
    kind: ev.RequestKind
    group: str  # empty for a canary
    path: str
    begun_ns: int
    ended_ns: int
    ok: bool
    content: ev.Content
    whose: str
    digest: str
    words: int
    prompt_tokens: int | None
    tokens: int
    finish: str
    mute: bool
    seq: int


class Facts:
    """Everything the questions need, gathered event by event."""

    def __init__(self) -> None:
        self.run: ev.RunStarted | None = None
        self.ended: ev.RunEnded | None = None
        self.deployment: ev.DeploymentSeen | None = None  # as last seen
        self.first_deployment: ev.DeploymentSeen | None = None
        self.phases: list[ev.PhaseEntered] = []
        self.canaries: dict[str, Canary] = {}
        self.by_path: dict[str, list[Canary]] = defaultdict(list)
        self.load: dict[str, LoadRequest] = {}
        self.group_began: dict[tuple[int, str], int] = {}  # by cycle and group: when its first request was sent
        self.answers: list[Answered] = []  # to canaries and load, where their content shows anything
        self._words: dict[str, int] = {}  # of the prompt of each request
        self.references: list[ev.RequestEnded] = []
        self.poison: dict[str, LoadRequest] = {}
        self.hung_up: list[ev.RequestEnded] = []  # canaries and load that we disconnected without a plan
        self.census: dict[tuple[int, str], ev.WaveCensus] = {}
        self.fired: dict[tuple[int, str], ev.WaveFired] = {}
        self.steps: list[ev.FaultStep] = []
        self.scrapes: dict[str, list[ev.Scrape]] = defaultdict(list)
        self.series: dict[Series, list[Reading]] = defaultdict(list)
        self.told: dict[Series, list[Reading]] = defaultdict(list)  # levels that were not scraped
        self.rests: list[ev.LevelsTold] = []  # those of them that were read while nothing was asked of the deployment
        self.loads: list[ev.LoadTold] = []
        self.liveness: list[ev.Liveness] = []
        self.hits: list[ev.LogHit] = []
        self.covered: list[ev.LogCovered] = []
        self.processes: dict[str, list[ev.ProcessSeen]] = defaultdict(list)
        self.forensics: list[ev.ForensicsTaken] = []
        self.lost: list[ev.EvidenceLost] = []
        self.health: dict[str, list[ev.HarnessHealth]] = defaultdict(list)
        self.seqs: set[int] = set()
        self.count = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None  # of what was observed; the farewell comes after cleaning up

    # ------------------------------------------------------------------------------------------ folding

    def feed_all(self, events: Iterable[ev.AnyEvent]) -> Facts:
        """Fold many events; returns itself."""
        for event in events:
            self.feed(event)
        return self

    def feed(self, event: ev.AnyEvent) -> None:  # noqa: C901, PLR0912, PLR0915 - one case per event type
        """Fold one event."""
        self.count += 1
        self.seqs.add(event.seq)
        if not isinstance(event, ev.RunEnded):
            self.first_ns = event.t_ns if self.first_ns is None else min(self.first_ns, event.t_ns)
            self.last_ns = event.t_ns if self.last_ns is None else max(self.last_ns, event.t_ns)
        match event:
            case ev.RunStarted():
                self.run = self.run or event
            case ev.DeploymentSeen():
                self.first_deployment = self.first_deployment or event
                self.deployment = event
            case ev.PhaseEntered():
                self.phases.append(event)
            case ev.RequestStarted():
                self._started(event)
            case ev.RequestOverdue():
                if event.req in self.canaries:
                    self.canaries[event.req].seqs.append(event.seq)
                    self.canaries[event.req].overdue = True
            case ev.RequestEnded():
                self._ended(event)
            case ev.WaveCensus():
                self.census[event.cycle, event.wave] = event
            case ev.WaveFired():
                self.fired[event.cycle, event.wave] = event
            case ev.FaultStep():
                self.steps.append(event)
            case ev.LoadTold():
                self.loads.append(event)
            case ev.Scrape():
                self._scraped(event)
            case ev.LevelsTold():
                self._levels(event)
            case ev.Liveness():
                self.liveness.append(event)
            case ev.LogHit():
                self.hits.append(event)
            case ev.LogCovered():
                self.covered.append(event)
            case ev.ProcessSeen():
                self.processes[event.node].append(event)
            case ev.ForensicsTaken():
                self.forensics.append(event)
            case ev.EvidenceLost():
                self.lost.append(event)
            case ev.HarnessHealth():
                self.health[event.who].append(event)
            case ev.RunEnded():
                self.ended = event
            case ev.ClockMeasured():
                pass  # every stamp that is judged is the harness's own

    def _started(self, event: ev.RequestStarted) -> None:
        begun = event.t_ns if event.sent_ns is None else event.sent_ns
        self._words[event.req] = max(event.words, 0)
        if event.kind == "canary" and event.req not in self.canaries:
            self._canary(event.req, event.path, begun).seqs.append(event.seq)
        elif event.kind == "poison":
            self.poison.setdefault(event.req, LoadRequest(event.path, begun))
        elif event.kind == "load" and event.req not in self.load:
            self.load[event.req] = LoadRequest(event.path, begun, event.group)
            key = (event.cycle, event.group)
            self.group_began[key] = min(self.group_began.get(key, begun), begun)

    def _ended(self, event: ev.RequestEnded) -> None:
        ended = event.t_ns if event.last_ns is None else event.last_ns
        begun = event.t_ns if event.sent_ns is None else event.sent_ns
        if event.kind == "reference":
            self.references.append(event)
            return
        if event.kind == "poison":
            self.poison.setdefault(event.req, LoadRequest(event.path, begun)).ended_ns = ended
            self._answered(event, begun, ended)
            return
        if event.ended_by == "harness":
            self.hung_up.append(event)
        if event.content != "unchecked" or event.ok:
            self._answered(event, begun, ended)
        if event.kind == "load":
            request = self.load.setdefault(event.req, LoadRequest(event.path, begun, event.group))
            # As of a canary: what was cut off ended when it was cut off, not with the last token before.
            request.ended_ns, request.tokens, request.ok = ended if event.ok else event.t_ns, event.tokens, event.ok
            request.ended_by, request.error, request.detail = event.ended_by, event.error, event.detail
            request.last_ns, request.seq = event.last_ns, event.seq
            return
        canary = self.canaries.get(event.req) or self._canary(event.req, event.path, begun)
        canary.seqs.append(event.seq)
        # A failure ends when we learn of it; an answer when its last byte came.
        canary.ended_ns = ended if event.ok else event.t_ns
        canary.ok = event.ok
        canary.ours = event.ended_by in ("harness", "fault")
        canary.error = event.error or ("" if event.ok else event.ended_by)

    def _answered(self, event: ev.RequestEnded, begun_ns: int, ended_ns: int) -> None:
        self.answers.append(
            Answered(
                req=event.req,
                kind=event.kind,
                group=event.group,
                path=event.path,
                begun_ns=begun_ns,
                ended_ns=ended_ns,
                ok=event.ok,
                content=event.content,
                whose=event.whose,
                digest=event.digest,
                words=self._words.get(event.req, 0),
                # A count below nothing is no count: it says nothing of the prompt.
                prompt_tokens=None if (event.prompt_tokens or 0) < 0 else event.prompt_tokens,
                tokens=event.tokens,
                finish=event.finish,
                mute=event.mute,
                seq=event.seq,
            )
        )

    def _canary(self, req: str, path: str, begun_ns: int) -> Canary:
        canary = Canary(req, path, begun_ns)
        self.canaries[req] = canary
        self.by_path[path].append(canary)
        return canary

    def _scraped(self, event: ev.Scrape) -> None:
        self.scrapes[event.node].append(event)
        if not event.ok:
            return
        for sample in event.samples:
            if sound(sample.value):
                key = Series(event.node, sample.name, sample.labels)
                self.series[key].append(Reading(event.t_ns, sample.value, event.seq))

    def _levels(self, event: ev.LevelsTold) -> None:
        if event.quiet_s is not None:
            self.rests.append(event)
        for sample in event.samples:
            if sound(sample.value):
                key = Series(event.node, sample.name, sample.labels)
                self.told[key].append(Reading(event.t_ns, sample.value, event.seq))

    # ------------------------------------------------------------------------------------------ reading

    @property
    def imported(self) -> bool:
        """Whether this was collected by hand: then nothing is known of a harness, for there was none."""
        return self.run is not None and self.run.origin == "imported"

    @property
    def plan(self) -> ev.Plan:
        """What the run intended; defaults when its first event is missing (then nothing is healthy anyway)."""
        return self.run.plan if self.run else ev.Plan(scenario="")

    def lost_after(self, seq: int) -> bool:
        """Whether any event after this one is missing from the record (its tail apart: nobody can know)."""
        return max(self.seqs, default=0) - seq > sum(1 for other in self.seqs if other > seq)

    @property
    def nodes(self) -> tuple[ev.Node, ...]:
        """The deployment's nodes as last seen."""
        return self.deployment.nodes if self.deployment else ()

    def node(self, node_id: str) -> ev.Node | None:
        """A node by id."""
        return next((node for node in self.nodes if node.id == node_id), None)

    def role(self, node_id: str) -> str:
        """A node's role; empty when it is not known."""
        node = self.node(node_id)
        return node.role if node else ""

    def paths(self) -> tuple[ev.Path, ...]:
        """The examined paths in the deployment's order; without a deployment, those that canaries took."""
        if self.deployment:
            return tuple(path for path in self.deployment.paths if path.examined)
        taken = sorted(self.by_path, key=lambda path: min(c.begun_ns for c in self.by_path[path]))
        return tuple(ev.Path(id=path, kind="routed") for path in taken)

    def nodes_of(self, path: ev.Path) -> tuple[str, ...]:
        """The nodes a path can lead over; all of them where the path does not say."""
        return path.nodes or tuple(node.id for node in self.nodes)

    def metrics(self, use: str) -> tuple[ev.MetricUse, ...]:
        """The wanted metrics of one use."""
        return tuple(m for m in self.deployment.metrics if m.use == use) if self.deployment else ()

    def phase_start(self, phase: ev.Phase, *, last: bool = False) -> int | None:
        """When a phase was first (or last) entered."""
        times = [entered.t_ns for entered in self.phases if entered.phase == phase]
        return (max(times) if last else min(times)) if times else None
