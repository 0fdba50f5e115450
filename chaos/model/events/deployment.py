"""What the deployment is: its nodes, the paths through it, and what its packs say about it."""

from __future__ import annotations

from typing import Literal

from chaos.model.events.envelope import Event, Record, Span

Role = Literal["router", "prefill", "decode"]
MetricPurpose = Literal["queue", "progress", "aborts", "served", "heartbeat", "info"]


class Node(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One server of the deployment. `observes` says which probes have something to look at on this node."""

    id: str
    role: Role
    engine: str = ""  # pack name
    version: str = ""  # as the engine reports it
    ranks: tuple[str, ...] = ()
    pid: int | None = None
    start_time: Span | None = None  # of the process, seconds since the epoch (psutil)
    observes: tuple[str, ...] = ()  # of: liveness metrics log process
    logs_aborts: bool = True  # False: its engine is not known to log the requests that it aborts


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
    seconds: Span
    source: str = ""  # where the value comes from: target | server_info | pack default


class MetricUse(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What a wanted metric is good for, as its pack says; the judge knows no metric by name."""

    name: str  # canonical, as in `Sample.name` and `Scrape.zero`
    kind: Literal["gauge", "counter"]
    use: MetricPurpose
    roles: tuple[Role, ...] = ()
    holds_s: Span = 0.0  # after a fault, until the engine's own timeout frees what it left


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
    gauge_lag_s: Span = 35.0
    not_examined: tuple[str, ...] = ()
    metrics: tuple[MetricUse, ...] = ()  # every wanted metric of the packs in use
    threads: tuple[ThreadUse, ...] = ()  # every thread that matters to the packs in use
