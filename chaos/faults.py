"""Faults from Python, each an async context manager: applied and measured on entering, undone and measured on leaving.

They are the very faults that scenarios play. What the target file does not allow is refused, and a fault that was not
measured to have taken effect raises `NotLanded`, for a test that goes on would test nothing.

    from chaos import faults, library

    target = library.load_target("target.yaml").value
    async with faults.signal(target, "STOP", role="decode") as frozen:
        print(frozen.measured)  # {'decode-0': '3 of 3 processes stopped (threads: 41 x T)'}
        ...                     # your own checks
    # continued again, also when they raised

    async with faults.clients(target, sessions=20, max_tokens=500) as agents:
        async with faults.kill(agents, "stall", sessions=5):
            ...

    async with faults.restart(target, role="prefill"):       # gone, and serves again
        ...
    async with faults.foreign_frame(target), faults.abort_frame(target):
        ...
    async with faults.partition(target, role="decode", peers="prefill"):   # on their hosts, over SSH
        ...
    async with faults.poison(target, "n2", count=3) as asked:
        print(asked.measured)   # {'refused with HTTP 400': '3', 'hanging': '0'}
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos import library
from chaos.engine.faults.kit import Asking, FaultKit
from chaos.engine.faults.permission import demand, reach
from chaos.engine.faults.registry import prepare
from chaos.engine.faults.restarts import CommandRestarter
from chaos.engine.hosts import Hosts
from chaos.engine.load.config import Endpoint
from chaos.engine.load.fleet import Fleet
from chaos.engine.ports import SystemClock
from chaos.engine.probes import Probes, make_http
from chaos.engine.probes.liveness import HealthSource
from chaos.engine.pyz import build_pyz
from chaos.engine.secrets import request_headers
from chaos.model import events as ev
from chaos.model.errors import PdchaosError
from chaos.model.scenario import Group, Scenario, Step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import httpx

    from chaos.engine.ports import Restarter
    from chaos.model.pack import Pack
    from chaos.model.target import Server, Target

__all__ = [
    "NotLanded",
    "Played",
    "abort_frame",
    "clients",
    "delay",
    "foreign_frame",
    "kill",
    "loss",
    "partition",
    "poison",
    "port_block",
    "rate",
    "restart",
    "signal",
]

GROUP = "clients"


class NotLanded(PdchaosError):
    """The fault was not applied, not verified, or could not be undone."""


@dataclass(slots=True)
class Played:
    """A fault that stands: every event of its life so far."""

    events: list[ev.AnyEvent] = field(default_factory=list)

    @property
    def steps(self) -> list[ev.FaultStep]:
        """The stages of its life."""
        return [event for event in self.events if isinstance(event, ev.FaultStep)]

    @property
    def measured(self) -> dict[str, str]:
        """What was measured of it when it was last verified."""
        return next((dict(step.measured) for step in reversed(self.steps) if step.stage == "verified"), {})

    def insist(self) -> None:
        """Raise `NotLanded` when any stage failed."""
        for step in self.steps:
            if not step.ok:
                raise NotLanded(f"{step.kind} was not {step.stage}: {step.detail or dict(step.measured)}")


@dataclass(frozen=True, slots=True)
class Clients:
    """Client processes of our own that send requests to a target."""

    target: Target
    fleet: Fleet
    hosts: Hosts


@asynccontextmanager
async def signal(
    target: Target,
    send: str,
    *,
    role: str,
    node: str | None = None,
    mode: int | str = "one",
    rank: int | None = None,
    child: str | None = None,
) -> AsyncIterator[Played]:
    """Send STOP, CONT, KILL or TERM to the processes of nodes, to one rank or to children. A STOP ends on leaving."""
    where = _given(role=role, node=node, mode=mode, rank=rank, child=child)
    async with _play(target, {"signal": {"where": where, "send": send}}) as played:
        yield played


@asynccontextmanager
async def restart(
    target: Target,
    *,
    role: str,
    node: str | None = None,
    mode: int | str = "one",
    variant: str | None = None,
    restarter: Restarter | None = None,
) -> AsyncIterator[Played]:
    """Replace nodes' processes by the commands of the target file, or as `restarter` can (a running lab)."""
    action = {"where": _given(role=role, node=node, mode=mode), **_given(**{"as": variant})}
    async with _play(target, {"restart": action}, restarter=restarter) as played:
        yield played


@asynccontextmanager
async def partition(
    target: Target, *, role: str, peers: str, direction: str = "both", **which: Any
) -> AsyncIterator[Played]:
    """Let no packet pass between nodes of a role and their `peers` (a role); or none `in` or `out`, as seen from them.

    This and what follows take `node`, `mode`, `peer_node` and `peer_mode`, to mean some nodes only.
    """
    async with _play(target, {"partition": {**_ends("from", role, peers, **which), "direction": direction}}) as played:
        yield played


@asynccontextmanager
async def port_block(target: Target, port: int | str, *, role: str, peers: str, **which: Any) -> AsyncIterator[Played]:
    """Have a port of nodes (`bootstrap`, `http` or a number) not answer their peers."""
    async with _play(target, {"port_block": {**_ends("from", role, peers, **which), "port": port}}) as played:
        yield played


@asynccontextmanager
async def loss(target: Target, percent: float, *, role: str, peers: str, **which: Any) -> AsyncIterator[Played]:
    """Lose so many of the packets that come to nodes from their peers."""
    async with _play(target, {"loss": {**_ends("from", role, peers, **which), "percent": float(percent)}}) as played:
        yield played


@asynccontextmanager
async def rate(target: Target, bit_per_s: float, *, role: str, peers: str, **which: Any) -> AsyncIterator[Played]:
    """Hold what goes from nodes to their peers to a rate."""
    async with _play(target, {"rate": {**_ends("to", role, peers, **which), "rate": float(bit_per_s)}}) as played:
        yield played


@asynccontextmanager
async def delay(
    target: Target, delay_s: float, *, role: str, peers: str, jitter_s: float = 0.0, **which: Any
) -> AsyncIterator[Played]:
    """Have what goes from nodes to their peers arrive later; refused where the kernel has no netem."""
    shape = {"delay": float(delay_s), "jitter": float(jitter_s)}
    async with _play(target, {"delay": {**_ends("to", role, peers, **which), **shape}}) as played:
        yield played


@asynccontextmanager
async def foreign_frame(target: Target, *, node: str | None = None, mode: int | str = "one") -> AsyncIterator[Played]:
    """Send a message that means nothing to the control socket of prefill nodes."""
    async with _play(target, {"foreign_frame": {"where": _given(node=node, mode=mode)}}) as played:
        yield played


@asynccontextmanager
async def abort_frame(target: Target, *, node: str | None = None, mode: int | str = "one") -> AsyncIterator[Played]:
    """Send an ABORT for a room that nobody knows to the control socket of prefill nodes."""
    async with _play(target, {"abort_frame": {"where": _given(node=node, mode=mode)}}) as played:
        yield played


@asynccontextmanager
async def poison(target: Target, kind: str, *, count: int = 1, api: str = "chat") -> AsyncIterator[Played]:
    """Send requests that some engines do not survive; those that hang are hung up on leaving."""
    async with _play(target, {"poison": {"kind": kind, "count": count, "api": api}}) as played:
        yield played


@asynccontextmanager
async def clients(target: Target, **workload: Any) -> AsyncIterator[Clients]:
    """Run client processes against the router until left; `workload` are the fields of a scenario's group.

    On entering, all of them have begun; on leaving, what is still open is hung up.
    """
    group = Group.model_validate({"name": GROUP, **workload})
    with tempfile.TemporaryDirectory(prefix="pdchaos-clients-") as scratch:
        async with _reached(target) as hosts, _tasks() as tasks:
            fleet = _fleet(target, hosts, [group], Path(scratch), tasks, pyz=build_pyz(Path(scratch) / "agent.pyz"))
            try:
                await fleet.start_groups()
                await fleet.arrived()
                yield Clients(target, fleet, hosts)
            finally:
                await fleet.hang_up()


@asynccontextmanager
async def kill(
    who: Clients,
    how: str = "sigkill",
    *,
    sessions: int | str = "all",
    deadline_s: float | None = None,
    then: str = "resume",
) -> AsyncIterator[Played]:
    """Break sessions of the clients. `stall` and `blackhole` last until left; then they `resume` or `close`."""
    action = {"group": GROUP, "how": how, "sessions": sessions, "then": then, **_given(deadline=deadline_s)}
    async with _play(who.target, {"kill": action}, clients=who) as played:
        yield played


# ---------------------------------------------------------------------------------------------- inside


class _Unobserved(Probes):
    """Of a deployment that nobody observes: there are no gauges for a census."""

    def __init__(self) -> None:
        """Observe nothing."""

    def readings(self) -> list[ev.QueueReading]:
        """None."""
        return []


@asynccontextmanager
async def _tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that lets an error of whoever uses it through as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


@asynccontextmanager
async def _play(
    target: Target, action: Mapping[str, Any], *, clients: Clients | None = None, restarter: Restarter | None = None
) -> AsyncIterator[Played]:
    """One fault, by the registry that scenarios use."""
    step = Step.model_validate({"id": "fault", "at": 0.0, **action})
    scenario = Scenario(version=1, name="python", timeline=[step])
    restarter = restarter or CommandRestarter.of(target)
    demand(scenario, target, restarter)
    packs = {name: library.load_pack(name).value for name in (target.engine, target.router_engine)}
    played = Played()
    async with AsyncExitStack() as stack:
        hosts = clients.hosts if clients else await stack.enter_async_context(_reached(target))
        await asyncio.to_thread(reach, scenario, target, packs, hosts)
        http = await stack.enter_async_context(make_http(target.tls, hosts.relays))
        tasks = await stack.enter_async_context(_tasks())
        with tempfile.TemporaryDirectory(prefix="pdchaos-fault-") as scratch:
            fleet = clients.fleet if clients else _fleet(target, hosts, [], Path(scratch), tasks)
            async with prepare(step, _kit(target, hosts, packs, fleet, http, restarter, played)):
                played.insist()
                yield played
        played.insist()


@asynccontextmanager
async def _reached(target: Target) -> AsyncIterator[Hosts]:
    """The target's hosts, and the way to its servers."""
    run = secrets.token_hex(4)
    hosts = await asyncio.to_thread(Hosts.open, target, lambda _said: None, run=run)
    try:
        await asyncio.to_thread(hosts.relay, target, run=run)
        yield hosts
    finally:
        await asyncio.to_thread(hosts.close)


def _kit(
    target: Target,
    hosts: Hosts,
    packs: Mapping[str, Pack],
    fleet: Fleet,
    http: httpx.AsyncClient,
    restarter: Restarter,
    played: Played,
) -> FaultKit:
    router, engine = packs[target.router_engine], packs[target.engine]
    base = next(_url(hosts, one) for one in target.servers if one.role == "router")
    aborting = [base + router.endpoints.abort] if router.endpoints.abort else []
    if engine.endpoints.abort and not aborting:
        aborting = [_url(hosts, one) + engine.endpoints.abort for one in target.servers if one.role != "router"]
    return FaultKit(
        fleet=fleet,
        probes=_Unobserved(),
        emit=played.events.append,
        clock=SystemClock(),
        run_id=fleet.run_id,
        servers=target.servers,
        hosts=hosts,
        rank_process={one.id: (router if one.role == "router" else engine).rank_process for one in target.servers},
        health={
            server.id: HealthSource(
                node=server.id, base_url=_url(hosts, server), endpoints=tuple(pack.endpoints.liveness)
            )
            for server in target.servers
            for pack in (router if server.role == "router" else engine,)
        },
        http=http,
        headers=request_headers(target),
        asking=Asking(
            model=target.model or "",
            urls={api: base + getattr(router.endpoints, api) for api in router.endpoints.speaks},
            models_url=base + router.endpoints.models if router.endpoints.models else "",
            named=router.rid,
        ),
        abort_urls=tuple(aborting),
        restarter=restarter,
        time_scale=target.time_scale,
    )


def _url(hosts: Hosts, server: Server) -> str:
    return hosts.relays.url(server.id, server.spec.url.rstrip("/"))


def _fleet(
    target: Target,
    hosts: Hosts,
    groups: list[Group],
    folder: Path,
    tasks: asyncio.TaskGroup,
    *,
    pyz: Path | None = None,
) -> Fleet:
    return Fleet(
        groups,
        Endpoint.of(target, target.model or "", hosts.relays.clients_door),
        run_id=secrets.token_hex(4),
        seed=1,
        pyz=pyz or folder / "none",
        folder=folder,
        emit=lambda _event: None,
        clock=SystemClock(),
        tasks=tasks,
        named=[group.name for group in groups] if library.load_pack(target.router_engine).value.rid else (),
        load=hosts.load,
        broke=hosts.relays.clients_broke,
        away=hosts.relays.clients_away,
    )


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _ends(
    key: str,
    role: str,
    peers: str,
    *,
    node: str | None = None,
    mode: int | str = "one",
    peer_node: str | None = None,
    peer_mode: int | str = "all",
) -> dict[str, object]:
    return {
        "where": _given(role=role, node=node, mode=mode),
        key: _given(role=peers, node=peer_node, mode=peer_mode),
    }
