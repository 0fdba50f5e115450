"""The verdict: what the judge says of a journal, in the shape that `verdict.json` and every renderer use."""

from __future__ import annotations

import msgspec

from chaos.model.outcomes import Answer, Cleanup, ExitCode, Outcome, RunStatus

FORMAT = 1


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a verdict."""


class Evidence(Part, frozen=True, kw_only=True):
    """One fact with the journal events (`seq`) that show it."""

    text: str
    seqs: tuple[int, ...] = ()


class Finding(Part, frozen=True, kw_only=True):
    """One answered question. Every question is evaluated, whatever the others say.

    `outcome` is the outcome this finding establishes when it is sound and bad, else None. `required` says that
    `unknown` here forbids `healthy`.
    """

    id: str
    question: str
    answer: Answer
    evidence: tuple[Evidence, ...] = ()
    outcome: Outcome | None = None
    required: bool = True


class Cause(Part, frozen=True, kw_only=True):
    """What the log signatures say about why; it explains an outcome and never makes one alone (except `damaged`)."""

    signature: str
    title: str
    side: str
    upstream: str
    fixed_in: str
    line: str
    seqs: tuple[int, ...] = ()
    symptom: bool = False  # it may follow from the trouble as well as make it: somebody gave up waiting, say


class PathVerdict(Part, frozen=True, kw_only=True):
    """How fresh requests fared on one path after the last fault, or since the load began where none struck."""

    path: str
    serves: Answer
    tardy: bool = False  # it serves, but came back, or answers, only past the budget or the deadline
    canaries: int = 0  # begun since then
    passed: int = 0  # in time
    late: int = 0  # completed after their deadline
    failed: int = 0
    unfinished: int = 0
    recovered_s: float | None = None  # after the last fault; None, too, where nothing was broken
    after: str = ""  # since when: "after wave 1", "since load began"
    note: str = ""


class WaveVerdict(Part, frozen=True, kw_only=True):
    """Whether one wave met what it aimed at."""

    wave: str
    cycle: int
    how: str
    phases: dict[str, int]
    sessions: int
    sockets: int
    spread_ms: float | None
    server_aborts: int | None  # distinct requests, by the servers' own account; None: nothing could tell
    landed: Answer
    unmet: tuple[str, ...] = ()
    fin: int | None = None
    rst: int | None = None
    kind: str = "kill"  # of the fault: a kill hits sessions, the others hit nodes
    nodes: tuple[str, ...] = ()  # that it hit
    router_watched: int = 0  # connections that the router's own kernel showed at the wave,
    router_closed: int | None = None  # how many of them it then saw ending (None: nobody could look,
    router_unknown: str = ""  # for this reason),
    router_spread_ms: float | None = None  # and how far apart the first and the last
    ends: dict[str, int] = {}  # of a poison's own requests: how many ended how, or hang


class Saved(Part, frozen=True, kw_only=True):
    """A snapshot of the deployment's inside that lies in the run folder."""

    folder: str  # relative to the run folder
    reason: str
    detail: str
    at_s: float  # since the run's first event
    files: int
    size: int  # bytes
    shows: tuple[str, ...] = ()  # per node, for people
    missing: tuple[str, ...] = ()


class Wedge(Part, frozen=True, kw_only=True):
    """How the wedge looks."""

    total: bool  # every examined path, else partial
    silent: bool  # every liveness endpoint that was asked stayed green
    confirmed: bool  # watched past the engine's own timeouts
    side: str  # prefill | decode | router | "" (unknown)
    paths: tuple[str, ...]
    nodes: tuple[str, ...] = ()  # lost workers, where every path still serves without them


class Leaving(Part, frozen=True, kw_only=True):
    """The requests of ours that a stopped run hung up on, and after which nobody watched the target."""

    at_once: bool  # a person could not wait; else the load did not end in time
    waiting: int  # users' requests that had no token yet
    streaming: int  # users' requests that had tokens
    unknown: int  # users' requests whose client could not tell any more
    canaries: int
    told: tuple[str, ...]  # all of it in sentences, and what is known since
    seqs: tuple[int, ...] = ()


class Verdict(Part, frozen=True, kw_only=True):
    """The whole answer. Three axes: outcome (target), status (our run), cleanup (what we left behind)."""

    format: int
    judge_version: str
    run_id: str
    scenario: str
    target: str
    outcome: Outcome
    status: RunStatus
    cleanup: Cleanup
    exit_code: ExitCode
    headline: str  # one sentence for a tired person
    reasons: tuple[str, ...]  # why this outcome, most important first
    findings: tuple[Finding, ...]
    paths: tuple[PathVerdict, ...] = ()
    waves: tuple[WaveVerdict, ...] = ()
    wedge: Wedge | None = None
    causes: tuple[Cause, ...] = ()
    leaving: Leaving | None = None
    not_examined: tuple[str, ...] = ()
    saved: tuple[Saved, ...] = ()
    allow: tuple[str, ...] = ()
    duration_s: float = 0.0
    imported: bool = False  # evidence that people collected: there was no run of ours, and nothing to clean up
