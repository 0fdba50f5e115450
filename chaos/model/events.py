"""The event stream, format 1: everything a run observes or does, as small frozen structs.

The engine emits these and does not know who listens; the journal writes them; the judge reads nothing else.
Times ending in `_ns` are nanoseconds of the harness's CLOCK_MONOTONIC unless the event names another `clock`.
Identities are roles and ordinals (`prefill-0`), never host names, so a verdict does not depend on where a run
happened; no lab build name and no secret is ever put into an event.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

FORMAT = 1

Role = Literal["router", "prefill", "decode"]
Phase = Literal[
    "baseline", "load", "watching", "recovery", "rest", "measuring", "teardown", "idle", "last-canaries", "leaving"
]
RequestKind = Literal["load", "canary", "reference", "poison"]
EndedBy = Literal["server", "harness", "fault", "error"]
Content = Literal["unchecked", "ok", "missing", "corrupted"]
ContentMode = Literal["echo", "known-answer", "unchecked", "auto"]
MetricPurpose = Literal["queue", "progress", "aborts", "served", "heartbeat", "info"]
Origin = Literal["live", "imported"]
HitClass = Literal["fatal", "abort", "timeout", "symptom", "crash", "restart", "benign", "traceback"]
Stage = Literal["planned", "applied", "verified", "reverted", "revert-verified"]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an event."""


class Event(Record, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """The envelope.

    `seq` is given by the journal, gapless from 1 (a gap is doubt). `src` says who observed it (`harness`,
    `agent:GROUP`, `probe:NAME`); `src_t_ns` is that observer's own stamp on `clock`. `cycle` counts from 1 once
    load starts; 0 is the baseline.
    """

    t_ns: int
    seq: int = 0
    src: str = "harness"
    src_t_ns: int | None = None
    clock: str = "harness"
    cycle: int = 0


# ---------------------------------------------------------------------------------------------- the plan


class Bound(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One condition on a count: `op` is one of `>= > <= < ==`."""

    name: str
    op: str
    value: float

    def met_by(self, got: float) -> bool:
        """Whether `got` satisfies the bound."""
        match self.op:
            case ">=":
                return got >= self.value
            case ">":
                return got > self.value
            case "<=":
                return got <= self.value
            case "<":
                return got < self.value
            case "==":
                return got == self.value
            case other:
                raise ValueError(f"unknown comparison {other!r}")


class PlannedFault(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One step of the timeline as resolved before the run.

    `aim` names census phases (`connecting waiting streaming thinking`), canonical gauges, or `server_aborts` (distinct
    requests whose abort the servers themselves logged or counted after the wave).
    """

    id: str
    kind: str  # kill | signal | restart | foreign-frame | abort-frame | sham
    how: str = ""  # for people: what it does to whom
    group: str = ""  # whose sessions a kill ends
    aim: tuple[Bound, ...] = ()
    disruptive: bool = True  # False: a step that breaks nothing
    lasts_s: float | None = None  # undone by us after this long; None: at the end of the run, or never
    cycles: tuple[int, ...] = ()  # those that it belongs to; none named: every one


class Plan(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What the run intends, with every duration already multiplied by the deployment's time scale (seconds)."""

    scenario: str
    about: str = ""
    cycles: int = 1
    faults: tuple[PlannedFault, ...] = ()
    groups: tuple[str, ...] = ()
    settle_s: float = 10.0
    rest_s: float = 0.0
    idle_s: float = 60.0
    quiet_s: float = 10.0  # canaries count only when begun this long after the last abort evidence
    watch_s: float = 330.0  # how long a wedge is watched after the last wave
    recover_within_s: float = 60.0
    canary_deadline_s: float = 20.0
    canary_interval_s: float = 1.0
    canaries_in_a_row: int = 5
    allow: tuple[str, ...] = ("healthy",)
    time_scale: float = 1.0
    until: str = ""  # "wedged": stop cycling at the first violation
    measure_s: float = 0.0  # how long load goes on after the last recovery, to see how fast it is served
    content: ContentMode = "unchecked"  # what answers can be held to, as the target's owner says


class PackUsed(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A pack that gave log lines and metrics their meaning in this run."""

    name: str
    engine: str
    sha256: str


class RunStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run.started"):
    """The first event. `target` is a kind (`lab:sim`, `file`), never a build or a host.

    `origin` says whether a run of ours observed all this, or whether it was imported from what people had collected.
    """

    format: int
    run_id: str
    tool_version: str
    utc: str  # ISO 8601, for people
    target: str
    plan: Plan
    seed: int = 0
    packs: tuple[PackUsed, ...] = ()
    origin: Origin = "live"
    gave_way: tuple[str, ...] = ()  # locks of other runs: what was dead and taken over, what was stolen and why


# ---------------------------------------------------------------------------------------------- the target


class Node(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One server of the deployment. `observes` says which probes have something to look at on this node."""

    id: str
    role: Role
    engine: str = ""  # pack name
    version: str = ""  # as the engine reports it
    ranks: tuple[str, ...] = ()
    pid: int | None = None
    start_time: float | None = None  # of the process, seconds since the epoch (psutil)
    observes: tuple[str, ...] = ()  # of: liveness metrics log process


class Path(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A way a request can take; `examined` says a canary takes it.

    `id` is `routed`, `prefill-0>decode-1` or, for one data-parallel rank of a pair, `prefill-0>decode-1 dp0`.
    """

    id: str
    kind: Literal["routed", "direct", "rank"]
    nodes: tuple[str, ...] = ()
    examined: bool = True
    reason: str = ""  # why it is not examined
    ranks: int = 1  # data-parallel ranks that its canaries take in turn
    rank: int = 0  # of kind `rank`: the data-parallel rank that the rooms of its canaries choose,
    of_ranks: int = 1  # among so many


class EngineTimeout(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A timeout of the engine itself, after which stuck requests may free themselves."""

    name: str
    seconds: float
    source: str = ""  # where the value comes from: target | server_info | pack default


class MetricUse(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What a wanted metric is good for, as its pack says; the judge knows no metric by name."""

    name: str  # canonical, as in `Sample.name` and `Scrape.zero`
    kind: Literal["gauge", "counter"]
    use: MetricPurpose
    roles: tuple[Role, ...] = ()
    holds_s: float = 0.0  # after a fault, until the engine's own timeout frees what it left


class ThreadUse(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A thread that a node cannot serve without, as its pack says; the judge knows no thread by name."""

    name: str  # part of the thread's name
    roles: tuple[Role, ...] = ()
    side: str = ""  # prefill | decode | router: what its end breaks
    title: str = ""


class DeploymentSeen(Event, frozen=True, kw_only=True, omit_defaults=True, tag="deployment.seen"):
    """What answered before anything was broken; emitted again when it changed."""

    nodes: tuple[Node, ...]
    paths: tuple[Path, ...]
    timeouts: tuple[EngineTimeout, ...] = ()
    gauge_lag_s: float = 35.0
    not_examined: tuple[str, ...] = ()
    metrics: tuple[MetricUse, ...] = ()  # every wanted metric of the packs in use
    threads: tuple[ThreadUse, ...] = ()  # every thread that matters to the packs in use


class ClockMeasured(Event, frozen=True, kw_only=True, omit_defaults=True, tag="clock.measured"):
    """The offset of another clock against the harness's monotonic clock (ns; other minus ours)."""

    of: str
    offset_ns: int
    uncertainty_ns: int


class PhaseEntered(Event, frozen=True, kw_only=True, omit_defaults=True, tag="phase.entered"):
    """The run moved on."""

    phase: Phase
    reason: str = ""


# ---------------------------------------------------------------------------------------------- requests


class RequestStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="request.started"):
    """A request of ours left. `sent_ns` is when its last byte was handed to the kernel."""

    req: str
    kind: RequestKind
    path: str
    intended_ns: int
    sent_ns: int | None = None
    group: str = ""
    session: int = -1
    round: int = 0
    api: str = ""
    room: int | None = None  # of a direct canary: what the engine's own log lines call the request
    words: int = 0  # of the questions in the prompt: ours are short and common, about a token each


class RequestOverdue(Event, frozen=True, kw_only=True, omit_defaults=True, tag="request.overdue"):
    """A canary passed its deadline and is left open."""

    req: str
    kind: RequestKind
    path: str
    age_s: float
    deadline_s: float


class Gaps(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Inter-token gaps of one response (ms)."""

    n: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class RequestEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="request.ended"):
    """A request of ours ended.

    It is a success only when `error` is empty: HTTP 200, the stream's end marker seen, a finish reason that is not an
    abort, at least one token. `ended_by` tells who ended it: a disconnect that no fault planned has `harness`.

    `content`: the answer holds the codeword that its prompt asks for (`ok`), lacks it (`missing`), or holds that of
    another request (`corrupted`, and `whose`). No codeword is ever written down, only whose it is.
    """

    req: str
    kind: RequestKind
    path: str
    sent_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    tokens: int = 0
    gaps: Gaps | None = None
    status: int | None = None
    finish: str = ""
    # "" or one of: connect refused status in-band truncated no-tokens timeout reset cancelled protocol way (it was our
    # own way to the server's host that broke)
    error: str = ""
    detail: str = ""  # what the server said, cut to 300 characters
    content: Content = "unchecked"
    whose: str = ""  # the request whose codeword the answer holds instead
    digest: str = ""  # of the answer to the prompt that is always the same
    prompt_tokens: int | None = None  # by the server's count
    mute: bool = False  # complete, with tokens by the server's count, and not a letter of text came
    ended_by: EndedBy = "server"
    group: str = ""
    session: int = -1
    round: int = 0

    @property
    def ok(self) -> bool:
        """True when the server answered completely and correctly, however late."""
        return not self.error and self.ended_by == "server"


class LoadTold(Event, frozen=True, kw_only=True, omit_defaults=True, tag="load.told"):
    """How a whole load fared between two moments, where nobody recorded its single requests.

    `goodput` is what it got through as a share of what the same load got through before anything was broken. `t_ns` is
    its end; what nobody counted is None.
    """

    from_ns: int
    sessions: int | None = None
    group: str = "load"
    completed: int | None = None
    failed: int | None = None
    goodput: float | None = None


# ---------------------------------------------------------------------------------------------- faults


class QueueReading(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A gauge as last scraped before the wave, with its age: gauges freeze in the state we look for."""

    node: str
    name: str
    value: float
    age_s: float


class AimCheck(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One aim against what was met; `got` is None when nothing could be read (unknown, not zero)."""

    name: str
    op: str
    want: float
    got: float | None = None


class WaveCensus(Event, frozen=True, kw_only=True, omit_defaults=True, tag="wave.census"):
    """In which phase each targeted session was at the moment of the wave."""

    wave: str
    phases: dict[str, int]
    queues: tuple[QueueReading, ...] = ()
    aim: tuple[AimCheck, ...] = ()  # only what can be known at the wave; server_aborts is judged later


class WaveFired(Event, frozen=True, kw_only=True, omit_defaults=True, tag="wave.fired"):
    """One fault against many sessions at once: when it was ordered, and when it reached the first and last of them.

    `router_*` is what the router's own kernel saw: of how many connections, how many ended, and between which two looks
    at them all of these did; `router_closed` is None where nobody could look, and `router_unknown` says why.
    """

    wave: str
    how: str
    ordered_ns: int
    first_ns: int | None = None
    last_ns: int | None = None
    sessions: int = 0
    sockets: int = 0  # open connections hit
    fin: int | None = None  # None: nobody can tell after SIGKILL
    rst: int | None = None
    router_watched: int = 0
    router_closed: int | None = None
    router_first_ns: int | None = None
    router_last_ns: int | None = None
    router_unknown: str = ""


class FaultStep(Event, frozen=True, kw_only=True, omit_defaults=True, tag="fault.step"):
    """One stage of a fault's life; a fault counts only once `verified` with `ok` and a measurement."""

    fault: str
    kind: str
    stage: Stage
    ok: bool
    measured: dict[str, str] = {}
    detail: str = ""
    ttl_s: float | None = None
    reversal: str = "none"  # what undoes it; "none" for a kill
    nodes: tuple[str, ...] = ()  # nodes whose processes it acts on; none for a fault of our own clients
    pids: tuple[int, ...] = ()  # those processes, where they are known
    ends: bool = False  # it ends these processes on purpose: their death and their replacement are our doing
    cut_off: tuple[str, ...] = ()  # nodes that have no way, or not the one that they need, while it stands
    cut_from: tuple[str, ...] = ()  # to any of these


# ---------------------------------------------------------------------------------------------- observations


class Sample(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One sample of a wanted metric under its canonical name; `labels` as scraped, sorted, `k=v` joined by commas."""

    name: str
    labels: str
    value: float


class Scrape(Event, frozen=True, kw_only=True, omit_defaults=True, tag="scrape"):
    """One reading of a node's metrics. A wanted name that is not in `samples` and not in `zero` is unknown."""

    node: str
    ok: bool
    took_ms: float = 0.0
    samples: tuple[Sample, ...] = ()
    zero: tuple[str, ...] = ()  # families announced by HELP without a sample: counters that never counted
    error: str = ""


class LevelsTold(Event, frozen=True, kw_only=True, omit_defaults=True, tag="levels.told"):
    """Levels that were not scraped: a server wrote them into its own log, or a person read them off.

    Labels name the rank where it is known; a sample without labels speaks for the whole node. A progress counter told
    by a log holds only what that log counted. A heartbeat is the moment (seconds on the journal's clock) at which a
    node's inner loop last gave a sign.
    """

    node: str
    by: Literal["log", "hand"]
    samples: tuple[Sample, ...]
    quiet_s: float | None = None  # how long nobody had asked anything of the deployment by then; None: not known


class Liveness(Event, frozen=True, kw_only=True, omit_defaults=True, tag="liveness"):
    """What a health endpoint said: recorded, never trusted."""

    node: str
    endpoint: str
    status: int | None
    took_ms: float
    error: str = ""


class LogHit(Event, frozen=True, kw_only=True, omit_defaults=True, tag="log.hit"):
    """A log line that a pack's signature knows, raw; only the first lines per signature are kept, the rest counted.

    `t_ns` is when it was read, which may be long after it was written: the host was lost, the reader was behind.
    """

    node: str
    stream: str
    signature: str  # id in the pack
    klass: HitClass
    line: str
    title: str = ""
    offset: int = 0
    count: int = 1
    key: str = ""  # what tells one occurrence from its echo on another rank (a bootstrap room)
    side: str = ""  # prefill | decode | router: where the cause is
    ends: str = ""  # what it ends: "thread" "process" or nothing
    upstream: str = ""
    fixed_in: str = ""
    log_time: str = ""  # the stamp as written, of the line itself or of the nearest one before it
    written_ns: int | None = None  # by its own stamp, on our clock; None: it has none, or nobody can understand it

    @property
    def by_ns(self) -> int:
        """The latest moment at which it can have been written. Never after it was read."""
        if self.written_ns is None:
            return self.t_ns
        fraction = re.search(r"[.,](\d{1,9})", self.log_time)
        covers_ns = int(10 ** (9 - len(fraction[1]))) if fraction else 1_000_000_000
        return min(self.t_ns, self.written_ns + covers_ns)  # a stamp is cut, not rounded


class LogCovered(Event, frozen=True, kw_only=True, omit_defaults=True, tag="log.covered"):
    """The byte range of one log that was really read; `lost` bytes were not (rotation, truncation)."""

    node: str
    stream: str
    start: int
    end: int
    lost: int = 0
    lines: int = 0
    note: str = ""
    unparsed: int = 0  # lines whose form nobody knows: neither dated, nor part of a traceback, nor known to a pack


class Child(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A child process of a node. Who saw it but not its pid numbers it from -1 down."""

    pid: int
    name: str
    alive: bool
    start_time: float = 0.0


class ProcessSeen(Event, frozen=True, kw_only=True, omit_defaults=True, tag="process.seen"):
    """The state of a node's process. `state` is psutil's word (running, sleeping, stopped, zombie, dead).

    A `pid` of 0 is one that nobody noted.

    `threads` are names as `threads_by` gave them: the kernel, counted over the whole process tree; or the interpreter
    (`python`), one entry per thread, complete for every living Python process of the tree.
    """

    node: str
    pid: int
    alive: bool
    state: str = ""
    start_time: float | None = None
    children: tuple[Child, ...] = ()
    threads: tuple[str, ...] = ()  # names, where they can be read
    threads_by: Literal["kernel", "python"] = "kernel"


class ForensicsTaken(Event, frozen=True, kw_only=True, omit_defaults=True, tag="forensics.taken"):
    """What was saved of the deployment's inside at one moment, in a folder of the run's own.

    `t_ns` is when saving began; `stacks` counts the threads saved per node; `missing` says what could not be saved and
    why. `threads-only` looks save no more than the stacks.
    """

    folder: str  # relative to the run folder: forensics/1-fatal-line
    # baseline | fatal-line | canary-overdue | process-gone | before-restart | not-recovered | not-serving (where
    # nothing was broken) | end
    reason: str
    detail: str = ""
    threads_only: bool = False
    files: tuple[str, ...] = ()
    size: int = 0  # bytes
    took_s: float = 0.0
    stacks: dict[str, int] = {}
    missing: tuple[str, ...] = ()


class EvidenceLost(Event, frozen=True, kw_only=True, omit_defaults=True, tag="evidence.lost"):
    """A probe could not look between two moments: what happened then is unknown, not fine."""

    probe: str
    node: str = ""
    from_ns: int
    to_ns: int
    cause: str = ""


class HarnessHealth(Event, frozen=True, kw_only=True, omit_defaults=True, tag="harness.health"):
    """Our own fitness over the last interval; `who` is `harness` or an agent."""

    who: str
    lag_max_ms: float
    lag_p99_ms: float = 0.0
    open_files: int = 0
    reference_ok: bool | None = None
    reference_ms: float | None = None
    intended: int = 0  # sends due so far
    delivered: int = 0  # sends made so far
    tokens: int = 0  # received so far
    completed: int = 0
    failed: int = 0
    phases: dict[str, int] = {}
    cpu_wait: dict[str, float] = {}  # by node: the share of the time that it waited for a CPU


class RunEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run.ended"):
    """The last event of a run that could say goodbye."""

    status: str  # RunStatus
    cleanup: str  # Cleanup
    reason: str = ""
    cleanup_detail: str = ""


AnyEvent = (
    RunStarted
    | DeploymentSeen
    | ClockMeasured
    | PhaseEntered
    | RequestStarted
    | RequestOverdue
    | RequestEnded
    | LoadTold
    | WaveCensus
    | WaveFired
    | FaultStep
    | Scrape
    | LevelsTold
    | Liveness
    | LogHit
    | LogCovered
    | ProcessSeen
    | ForensicsTaken
    | EvidenceLost
    | HarnessHealth
    | RunEnded
)
