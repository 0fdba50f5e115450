"""What a run works with, made from what it was given and what it found: load, faults' kit, forensics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from chaos.engine.faults.kit import Asking, FaultKit
from chaos.engine.forensics import Forensics, Subject, Suspicion
from chaos.engine.load.config import Endpoint
from chaos.engine.load.fleet import Fleet
from chaos.engine.probes.follow import asked
from chaos.engine.secrets import known_secrets

if TYPE_CHECKING:
    import asyncio

    import httpx

    from chaos.engine.cleaning import Doubt
    from chaos.engine.ports import Emit
    from chaos.engine.probes import Discovery, Probes
    from chaos.engine.setup import RunSetup


def make_fleet(setup: RunSetup, found: Discovery, *, emit: Emit, tasks: asyncio.TaskGroup) -> Fleet:
    """Every group's agents; none is started yet."""
    relays = setup.hosts.relays
    return Fleet(
        setup.scenario.load,
        Endpoint.of(setup.target, found.model, relays.clients_door),
        run_id=setup.run_id,
        seed=setup.scenario.seed,
        pyz=setup.pyz,
        folder=setup.folder.logs,
        emit=emit,
        clock=setup.clock,
        tasks=tasks,
        named={step.kill.group for step in setup.scenario.timeline if step.kill and step.kill.how == "abort-api"},
        owners=setup.owners if setup.plan.content != "unchecked" else None,
        load=setup.hosts.load,
        broke=relays.clients_broke,
        away=relays.clients_away,
    )


def make_kit(
    setup: RunSetup,
    found: Discovery,
    *,
    fleet: Fleet,
    probes: Probes,
    forensics: Forensics,
    http: httpx.AsyncClient,
    emit: Emit,
    leftovers: list[str],
    doubts: list[Doubt],
) -> FaultKit:
    """What faults need; they add to `leftovers` and `doubts`."""
    return FaultKit(
        fleet=fleet,
        probes=probes,
        emit=emit,
        clock=setup.clock,
        run_id=setup.run_id,
        servers=setup.target.servers,
        hosts=setup.hosts,
        router_pid=found.router.node.pid,
        health={node.node.id: node.health for node in found.nodes if node.health},
        http=http,
        headers=found.headers,
        abort_urls=found.abort_urls,
        asking=_asking(setup, found),
        rank_process={node.node.id: node.pack.rank_process for node in found.nodes},
        restarter=setup.restarter,
        seed=setup.scenario.seed,
        time_scale=setup.plan.time_scale,
        leftovers=leftovers,
        doubts=doubts,
        before_restart=partial(forensics.save, "before-restart"),
    )


def _asking(setup: RunSetup, found: Discovery) -> Asking:
    router = found.router
    endpoints = router.pack.endpoints
    return Asking(
        model=found.model,
        urls={api: router.base_url + getattr(endpoints, api) for api in endpoints.speaks},
        models_url=router.base_url + endpoints.models if endpoints.models else "",
        named=router.pack.rid,
        owners=setup.owners,
    )


def make_forensics(
    setup: RunSetup,
    found: Discovery,
    *,
    probes: Probes,
    http: httpx.AsyncClient,
    emit: Emit,
    suspicion: Suspicion,
) -> Forensics:
    """What saves the inside of every node that was found."""
    return Forensics(
        [
            Subject(
                node=node.node.id,
                host=setup.hosts.at(node.node.id),
                metrics_url=node.metrics.url if node.metrics else "",
                info_url=node.base_url + node.pack.endpoints.info if node.pack.endpoints.info else "",
                logs=tuple((log.stream, log.log.file) for log in node.logs if log.log.file),
                printed=tuple((log.stream, asked(log.log)) for log in node.logs if not log.log.file),
            )
            for node in found.nodes
        ],
        watched=probes.processes,
        wanted=[thread.name for thread in found.seen.threads],
        http=http,
        headers=found.headers,
        emit=emit,
        clock=setup.clock,
        folder=setup.folder,
        suspicion=suspicion,
        secrets=known_secrets(),
    )
