"""Looks at a deployment before anything is broken: who answers, what can be observed, and what cannot and why."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from chaos.engine.hosts import HostLost, HostTrouble
from chaos.engine.probes.follow import LogLook, LogSource, asked
from chaos.engine.probes.inquiry import Inquiry, Said
from chaos.engine.probes.knowledge import known_signatures, metric_uses, thread_uses, wanted_metrics
from chaos.engine.probes.liveness import HealthSource
from chaos.engine.probes.locate import UNTOLD, NotLocated, locate
from chaos.engine.probes.metrics import MetricsSource
from chaos.engine.probes.pairs import ONLY_PAIR, pair_paths
from chaos.engine.probes.process import ProcessSource
from chaos.model import events as ev
from chaos.model.errors import Unfit, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from chaos.engine.hosts import Host, Hosts
    from chaos.engine.ports import Clock
    from chaos.model.pack import Pack
    from chaos.model.target import Server, ServerSpec, Target

NO_MODEL = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNode:
    """A node and what its probes look at; None or empty where there is nothing to look at."""

    node: ev.Node
    pack: Pack
    spec: ServerSpec
    base_url: str
    metrics: MetricsSource | None
    health: HealthSource | None
    logs: tuple[LogSource, ...]
    process: ProcessSource | None
    models: tuple[str, ...] = ()
    dp_size: int = 1  # data-parallel ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What `discover` found. `seen` goes into the journal; `notes` say for people what cannot be observed and why."""

    seen: ev.DeploymentSeen
    model: str
    nodes: tuple[FoundNode, ...]
    headers: Mapping[str, str] = field(repr=False)  # may hold a key
    notes: tuple[str, ...]

    @property
    def router(self) -> FoundNode:
        """The router."""
        return next(found for found in self.nodes if found.node.role == "router")

    @property
    def abort_urls(self) -> tuple[str, ...]:
        """Where a request is aborted by its id: at the router if it can be, else at every node, for it may be any."""
        router = self.router.pack.endpoints.abort
        if router:
            return (self.router.base_url + router,)
        nodes = [found for found in self.nodes if found.node.role != "router" and found.pack.endpoints.abort]
        return tuple(found.base_url + found.pack.endpoints.abort for found in nodes)


class Problem(NamedTuple):
    """Why a run cannot start with this node."""

    topic: Literal["http", "metrics", "log", "process"]
    text: str


@dataclass(slots=True)
class Looked:
    """One node looked at: what was found, what is not there, and the reasons why the run cannot start."""

    found: FoundNode
    notes: list[str]
    problems: list[Problem]


async def discover(
    target: Target,
    packs: Mapping[str, Pack],
    plan: ev.Plan,
    *,
    http: httpx.AsyncClient,
    clock: Clock,
    hosts: Hosts,
    headers: Mapping[str, str] | None = None,
) -> Discovery:
    """Ask every server of the target. Raises Unfit when one does not answer or is not what the target says."""
    headers = headers or {}
    inquiry = Inquiry(http, headers, plan.time_scale)
    looked = await look(target, target.servers, packs, inquiry, hosts, clock)
    problems = [problem.text for one in looked for problem in one.problems]
    if problems:
        told = "; ".join(dict.fromkeys(problems))
        raise Unfit(told, hint="nothing was touched: mend the deployment or the target file")
    return put_together(target, plan, looked, clock=clock, headers=headers)


async def look(
    target: Target,
    servers: Sequence[Server],
    packs: Mapping[str, Pack],
    inquiry: Inquiry,
    hosts: Hosts,
    clock: Clock,
) -> list[Looked]:
    """Ask these servers of the target, all at once; what is wrong with them is in the answer."""
    known = [(one.id, one.role, one.spec, _pack(packs, target, one.role)) for one in servers]
    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(_look(*one, inquiry, hosts, clock)) for one in known]
    looked = [look.result() for look in looks]
    _tell_apart(looked)
    return looked


def _tell_apart(looked: Sequence[Looked]) -> None:
    """Two nodes with one process: one is watched in the other's place, and would be broken in its place."""
    owners: dict[tuple[Host, int], list[Looked]] = {}
    for one in looked:
        if one.found.process is not None:
            owners.setdefault((one.found.process.host, one.found.process.found.pid), []).append(one)
    for (_, pid), sharing in owners.items():
        if len(sharing) > 1:
            names = ", ".join(one.found.node.id for one in sharing)
            problem = Problem("process", f"the same process (pid {pid}) is found for each of {names}")
            for one in sharing:
                one.problems.append(problem)


def put_together(
    target: Target, plan: ev.Plan, looked: Sequence[Looked], *, clock: Clock, headers: Mapping[str, str]
) -> Discovery:
    """What looks at all nodes found, as one."""
    nodes = tuple(one.found for one in looked)
    notes = [note for one in looked for note in one.notes]
    model = target.model or next((model for found in nodes for model in found.models), "")
    if not model:
        notes.append(f"no server names its model; canaries ask for {NO_MODEL!r}")
    paths = _paths(nodes)
    unasked = [f"path {path.id}: {path.reason}" for path in paths if not path.examined and path.reason != ONLY_PAIR]
    used = {found.pack.name: found.pack for found in nodes}
    timeouts = _timeouts(target, list(used.values()), plan.time_scale)
    seen = ev.DeploymentSeen(
        t_ns=clock.now_ns(),
        nodes=tuple(found.node for found in nodes),
        paths=paths,
        timeouts=timeouts,
        gauge_lag_s=_gauge_lag(target, list(used.values()), plan.time_scale),
        not_examined=(*unasked, *notes),
        metrics=metric_uses(used.values(), timeouts),
        threads=thread_uses(used.values()),
    )
    return Discovery(seen=seen, model=model or NO_MODEL, nodes=nodes, headers=headers, notes=tuple(notes))


def _pack(packs: Mapping[str, Pack], target: Target, role: ev.Role) -> Pack:
    name = target.router_engine if role == "router" else target.engine
    if name not in packs:
        raise UsageError(f"there is no pack {name!r}", hint=f"there are: {', '.join(sorted(packs)) or 'none'}")
    return packs[name]


async def _look(
    name: str, role: ev.Role, spec: ServerSpec, pack: Pack, inquiry: Inquiry, hosts: Hosts, clock: Clock
) -> Looked:
    host, base_url = hosts.at(name), hosts.relays.url(name, spec.url.rstrip("/"))
    said = await inquiry.ask(base_url, pack.endpoints)
    notes = [f"{name}: {note}" for note in said.notes]
    problems = _server_problems(name, role, spec.url, said)
    version = said.info.version or ""
    health = HealthSource(node=name, base_url=base_url, endpoints=said.liveness) if said.liveness else None
    metrics = await _metrics(name, role, spec, pack, version, inquiry, hosts, notes, problems)
    logs = await _logs(name, role, spec, pack, version, host, clock, notes, problems)
    process = await _process(name, spec, host, notes, problems)
    observes = {"liveness": health, "metrics": metrics, "log": logs, "process": process}
    node = ev.Node(
        id=name,
        role=role,
        engine=pack.name,
        version=version,
        ranks=said.info.ranks,
        pid=process.found.pid if process else None,
        start_time=process.found.start_time if process else None,
        observes=tuple(probe for probe, there in observes.items() if there),
        logs_aborts=pack.logs_aborts,
    )
    found = FoundNode(
        node=node,
        pack=pack,
        spec=spec,
        base_url=base_url,
        metrics=metrics,
        health=health,
        logs=logs,
        process=process,
        models=said.models,
        dp_size=max(said.info.dp_size or 1, 1),
    )
    return Looked(found, notes, problems)


def _server_problems(name: str, role: ev.Role, url: str, said: Said) -> list[Problem]:
    if said.silent:
        return [Problem("http", f"{name} at {url} does not answer ({said.silent})")]
    mode = said.info.disaggregation_mode
    if role != "router" and mode is not None and mode != role:
        return [Problem("http", f"{name} at {url} says that its disaggregation mode is {mode!r}, not {role!r}")]
    return []


# What a target file names must be there: evidence that was promised and is missing would only show as "inconclusive"
# after the whole run. What it leaves out is listed as not examined.


async def _metrics(
    name: str,
    role: ev.Role,
    spec: ServerSpec,
    pack: Pack,
    version: str,
    inquiry: Inquiry,
    hosts: Hosts,
    notes: list[str],
    problems: list[Problem],
) -> MetricsSource | None:
    """Where the metrics are, if they can be read now."""
    wanted = wanted_metrics(pack, role, version)
    url = spec.metrics or (spec.url.rstrip("/") + pack.endpoints.metrics if pack.endpoints.metrics else "")
    if not (url and wanted):
        notes.append(f"{name}: no metrics (none are known)")
        return None
    asked = hosts.relays.url(name, url)
    error = await inquiry.metrics_error(asked)
    if error and spec.metrics:
        problems.append(Problem("metrics", f"{name}: no metrics at {url} ({error})"))
        return None
    if error:
        notes.append(f"{name}: no metrics ({error})")
        return None
    return MetricsSource(node=name, url=asked, wanted=wanted, instance_labels=frozenset(pack.instance_labels))


async def _logs(
    name: str,
    role: ev.Role,
    spec: ServerSpec,
    pack: Pack,
    version: str,
    host: Host,
    clock: Clock,
    notes: list[str],
    problems: list[Problem],
) -> tuple[LogSource, ...]:
    """All logs the target names, with a cursor where each ends now."""
    if not spec.log:
        notes.append(f"{name}: no log (the target names none)")
        return ()
    signatures = known_signatures(pack, role, version)
    since_ns = clock.now_ns()
    try:
        looks = msgspec.convert(await host.call("log.probe", sources=[asked(log) for log in spec.log]), list[LogLook])
    except (HostLost, HostTrouble) as why:
        problems.append(Problem("log", f"{name}: its log cannot be read ({why} on {host.label})"))
        return ()
    there = f" on {host.label}" if host.remote else ""
    problems += [
        Problem("log", f"{name}: its log {log.told} cannot be read ({look.why}{there})")
        for log, look in zip(spec.log, looks, strict=True)
        if look.why
    ]
    return tuple(
        LogSource(
            node=name,
            stream="log" if len(spec.log) == 1 else f"log-{n}",
            log=log,
            host=host,
            signatures=signatures,
            cursors=look.cursors,
            since_ns=since_ns,
        )
        for n, (log, look) in enumerate(zip(spec.log, looks, strict=True))
    )


async def _process(
    name: str, spec: ServerSpec, host: Host, notes: list[str], problems: list[Problem]
) -> ProcessSource | None:
    try:
        found = await locate(host, spec)
    except NotLocated as why:
        problems.append(Problem("process", f"{name}: its process is not there ({why})"))
        return None
    except HostLost as why:
        problems.append(Problem("process", f"{name}: its process cannot be looked for ({why})"))
        return None
    if found is None:
        notes.append(f"{name}: process not watched ({UNTOLD})")
        return None
    return ProcessSource(node=name, spec=spec, host=host, found=found)


def _paths(nodes: tuple[FoundNode, ...]) -> tuple[ev.Path, ...]:
    routed = ev.Path(id="routed", kind="routed", nodes=tuple(found.node.id for found in nodes))
    return (routed, *pair_paths(nodes))


def _timeouts(target: Target, packs: list[Pack], time_scale: float) -> tuple[ev.EngineTimeout, ...]:
    """The engine's own timeouts: the target's values as they are, the packs' defaults on the deployment's clocks."""
    known = {
        timeout.name: ev.EngineTimeout(name=timeout.name, seconds=timeout.default * time_scale, source="pack default")
        for pack in packs
        for timeout in pack.timeouts
    }
    told = {
        name: ev.EngineTimeout(name=name, seconds=seconds, source="target") for name, seconds in target.timeouts.items()
    }
    return tuple({**known, **told}.values())


def _gauge_lag(target: Target, packs: list[Pack], time_scale: float) -> float:
    if target.gauge_lag is not None:
        return target.gauge_lag
    return max(pack.gauge_lag for pack in packs) * time_scale
