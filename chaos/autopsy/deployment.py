"""What was running and what would have been right, as a live run would have found and planned it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine.probes.knowledge import metric_uses, thread_uses
from chaos.model import events as ev
from chaos.model.units import bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chaos.autopsy.notes import Deed
    from chaos.model.observations import Observations
    from chaos.model.pack import Pack

SETTLE_S = 10.0
QUIET_S = 10.0
"""As in a scenario: aborts reach the servers seconds after a disconnect."""
IN_A_ROW = 5
CANARY_EVERY_S = 1.0
MOST_PAIRS = 16
LANDED = (ev.Bound(name="server_aborts", op=">=", value=1),)
"""Killing clients exercised the abort path only if the servers told of at least one abort."""
LANDED_UNTOLD = (ev.Bound(name="waiting", op=">=", value=1),)
"""Of an engine that never tells of aborts: somebody must have seen a session there that waited for its first token."""


def nodes_of(
    told: Observations, packs: Mapping[str, Pack], observed: Mapping[str, set[str]] | None = None
) -> tuple[ev.Node, ...]:
    """The nodes, and what was collected of each."""
    spec, observed = told.deployment, observed or {}
    return tuple(
        ev.Node(
            id=name,
            role=node.role,
            engine=spec.router_engine if node.role == "router" else spec.engine,
            version="" if node.role == "router" else spec.version,
            ranks=tuple(node.ranks),
            observes=tuple(
                probe for probe in ("liveness", "metrics", "log", "process") if probe in observed.get(name, ())
            ),
            logs_aborts=packs[spec.router_engine if node.role == "router" else spec.engine].logs_aborts,
        )
        for name, node in told.named_nodes
    )


def deployment_seen(
    told: Observations, nodes: Sequence[ev.Node], packs: Mapping[str, Pack], unread: Sequence[str], at_ns: int
) -> ev.DeploymentSeen:
    """The deployment, its paths, and what its metrics and threads mean."""
    used = [packs[name] for name in dict.fromkeys(node.engine for node in nodes)]
    readings = [level for pack in used for reading in pack.readings for level in reading.levels]
    timeouts = _timeouts(told, packs)
    uses = {use.name: use for use in metric_uses(used, timeouts)}
    for level in readings:
        uses.setdefault(level.metric, ev.MetricUse(name=level.metric, kind="gauge", use=level.use))
    lag_s = told.deployment.gauge_lag
    return ev.DeploymentSeen(
        t_ns=at_ns,
        nodes=tuple(nodes),
        paths=_paths(told, nodes),
        timeouts=timeouts,
        gauge_lag_s=max(pack.gauge_lag for pack in used) if lag_s is None else lag_s,
        not_examined=tuple(unread),
        metrics=tuple(uses.values()),
        threads=thread_uses(used),
    )


def _paths(told: Observations, nodes: Sequence[ev.Node]) -> tuple[ev.Path, ...]:
    """The way through the router, and every pair: asked by itself, or said not to be where there are several."""
    asked = {request.path for request in told.requests}
    by_role: dict[str, list[str]] = {"prefill": [], "decode": []}
    for node in nodes:
        by_role.setdefault(node.role, []).append(node.id)
    pairs = [(prefill, decode) for prefill in by_role["prefill"] for decode in by_role["decode"]]
    routed = ev.Path(id="routed", kind="routed", nodes=tuple(node.id for node in nodes))
    direct = [
        ev.Path(
            id=f"{prefill}>{decode}",
            kind="direct",
            nodes=(prefill, decode),
            examined=f"{prefill}>{decode}" in asked,
            reason="" if f"{prefill}>{decode}" in asked else "nobody asked it by itself",
        )
        for prefill, decode in pairs
        if f"{prefill}>{decode}" in asked or 1 < len(pairs) <= MOST_PAIRS
    ]
    if "routed" not in asked and asked:
        return tuple(direct)
    return (routed, *direct)


def _timeouts(told: Observations, packs: Mapping[str, Pack]) -> tuple[ev.EngineTimeout, ...]:
    known = {
        timeout.name: ev.EngineTimeout(name=timeout.name, seconds=timeout.default, source="pack default")
        for timeout in packs[told.deployment.engine].timeouts
    }
    noted = {
        name: ev.EngineTimeout(name=name, seconds=seconds, source="observations")
        for name, seconds in told.deployment.timeouts.items()
    }
    return tuple({**known, **noted}.values())


def plan_of(told: Observations, deeds: Sequence[Deed], seen: ev.DeploymentSeen, packs: Mapping[str, Pack]) -> ev.Plan:
    """What would have been right, and what had to be waited for before anything may be called permanent."""
    longest_s = max((timeout.seconds for timeout in seen.timeouts), default=0.0)
    proof_s = QUIET_S + IN_A_ROW * CANARY_EVERY_S
    cycles = max((deed.cycle for deed in deeds), default=1)
    landed = LANDED if packs[told.deployment.engine].logs_aborts else LANDED_UNTOLD
    planned: dict[str, ev.PlannedFault] = {}
    for deed in deeds:
        known = planned.get(deed.id)
        planned[deed.id] = ev.PlannedFault(
            id=deed.id,
            kind=deed.kind,
            how=deed.how,
            group="",
            aim=landed if deed.kind == "kill" and deed.note.aim is None else bounds(deed.note.aim or {}),
            lasts_s=deed.lasted_s if deed.lasted_s is not None or known is None else known.lasts_s,
            cycles=(*(known.cycles if known else ()), deed.cycle),
        )
    return ev.Plan(
        scenario=told.name,
        about=told.about,
        cycles=cycles,
        faults=tuple(planned.values()),
        groups=tuple(dict.fromkeys(load.name for load in told.load)),
        settle_s=SETTLE_S,
        quiet_s=QUIET_S,
        watch_s=max(longest_s + seen.gauge_lag_s + proof_s, told.expect.recover_within + proof_s),
        recover_within_s=told.expect.recover_within,
        canary_deadline_s=told.expect.deadline,
        canary_interval_s=CANARY_EVERY_S,
        canaries_in_a_row=IN_A_ROW,
        allow=tuple(outcome.value for outcome in told.expect.allow),
    )
