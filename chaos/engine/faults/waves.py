"""Fires a wave: one fault against many sessions at once.

The order matters. The census is taken immediately before the fault, because it decides whether the run meant anything:
only requests that still wait for their first token make the engine send an abort to the other side (sglang#27372).
The wave counts as landed only after the kernel shows that the connections are gone.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.engine.faults.sockets import connections_of, still_established
from chaos.engine.load.census import OPEN_PHASES, PHASES
from chaos.model import events as ev
from chaos.model.scenario import SERVER_ABORTS
from chaos.model.units import bounds

if TYPE_CHECKING:
    from chaos.engine.load.agent import Agent
    from chaos.engine.load.fleet import Fleet
    from chaos.engine.ports import Clock, Emit
    from chaos.engine.probes import Probes
    from chaos.model.scenario import Step

SOCKETS_GONE_S = 5.0
"""The kernel closes 1000 sockets in about 10 ms; a machine that starves needs longer."""


@dataclass(frozen=True, slots=True)
class WaveKit:
    """What a wave needs from the run."""

    fleet: Fleet
    probes: Probes
    emit: Emit
    clock: Clock


async def fire(step: Step, kit: WaveKit) -> None:
    """Fire the wave of `step` and journal census, shot and verification; never raises for a wave that failed."""
    agent = kit.fleet.agent(step.kill.group)
    held = connections_of(agent.pid)
    aim = bounds(step.aim)
    if step.kill.how == "sigkill":
        shot = await _sigkill(step, agent, aim, kit)
    else:
        shot = await _from_inside(step, agent, aim, kit)
    if shot is not None:
        await _verify(step, agent, held, kit)


def gave_up(step: Step, why: str, kit: WaveKit) -> None:
    """Journal that the wave's trigger never came: nothing was broken, nothing was learnt."""
    kit.emit(ev.FaultStep(t_ns=kit.clock.now_ns(), fault=step.id, kind="kill", stage="applied", ok=False, detail=why))


# ---------------------------------------------------------------------------------------------- the shots


async def _sigkill(step: Step, agent: Agent, aim: tuple[ev.Bound, ...], kit: WaveKit) -> ev.WaveFired | None:
    counted = agent.census()
    ordered = kit.clock.now_ns()
    agent.sigkill()
    first = kit.clock.now_ns()
    _census(step, counted, ordered, aim, kit)
    try:
        async with asyncio.timeout(SOCKETS_GONE_S):
            await agent.ended()
    except TimeoutError:
        _not_applied(step, f"process {agent.pid} survived SIGKILL for {SOCKETS_GONE_S:g} s", kit)
        return None
    shot = ev.WaveFired(
        t_ns=kit.clock.now_ns(),
        wave=step.id,
        how="sigkill",
        ordered_ns=ordered,
        first_ns=first,
        last_ns=kit.clock.now_ns(),
        sessions=sum(counted.values()) - counted["done"] if counted else 0,
        sockets=sum(counted[phase] for phase in OPEN_PHASES) if counted else 0,
    )
    _applied(step, shot, kit)
    return shot


async def _from_inside(step: Step, agent: Agent, aim: tuple[ev.Bound, ...], kit: WaveKit) -> ev.WaveFired | None:
    try:
        done = await agent.wave(step.id, step.kill.how, step.kill.sessions)
    except TimeoutError:
        _not_applied(step, "the agent did not answer the order", kit)
        return None
    _census(step, done.phases, done.ordered, aim, kit)
    shot = ev.WaveFired(
        t_ns=kit.clock.now_ns(),
        wave=step.id,
        how=step.kill.how,
        ordered_ns=done.ordered,
        first_ns=done.first,
        last_ns=done.last,
        sessions=done.sessions,
        sockets=done.sockets,
        fin=done.fin,
        rst=done.rst,
    )
    _applied(step, shot, kit)
    return shot


async def _verify(step: Step, agent: Agent, held: frozenset[str] | None, kit: WaveKit) -> None:
    """Measure that the connections that the process held are gone: all of them, or as many as were ordered."""
    wanted_left = 0
    if held is not None and isinstance(step.kill.sessions, int) and step.kill.how != "sigkill":
        wanted_left = max(len(held) - step.kill.sessions, 0)
    deadline = kit.clock.now_ns() + int(SOCKETS_GONE_S * 1e9)
    left = still_established(held) if held else None
    while left is not None and left > wanted_left and kit.clock.now_ns() < deadline:
        await kit.clock.sleep(0.02)
        left = still_established(held or frozenset())
    measured = {
        "connections": "unknown" if held is None else str(len(held)),
        "still_established": "unknown" if left is None else str(left),
    }
    ok = left is not None and left <= wanted_left
    if step.kill.how == "sigkill":
        measured["exit_status"] = str(agent.returncode)
        ok = ok and agent.returncode == -signal.SIGKILL
    kit.emit(
        ev.FaultStep(t_ns=kit.clock.now_ns(), fault=step.id, kind="kill", stage="verified", ok=ok, measured=measured)
    )


# ---------------------------------------------------------------------------------------------- the records


def _census(step: Step, counted: dict[str, int] | None, at_ns: int, aim: tuple[ev.Bound, ...], kit: WaveKit) -> None:
    queues = tuple(kit.probes.readings())
    checks = []
    for bound in aim:
        if bound.name == SERVER_ABORTS:
            continue  # only the servers can tell, and only later
        if bound.name in PHASES:
            got = float(counted[bound.name]) if counted else None
        else:
            of_gauge = [reading.value for reading in queues if reading.name == bound.name]
            got = sum(of_gauge) if of_gauge else None
        checks.append(ev.AimCheck(name=bound.name, op=bound.op, want=bound.value, got=got))
    kit.emit(
        ev.WaveCensus(
            t_ns=kit.clock.now_ns(),
            src_t_ns=at_ns,
            wave=step.id,
            phases=counted or {},
            queues=queues,
            aim=tuple(checks),
        )
    )


def _applied(step: Step, shot: ev.WaveFired, kit: WaveKit) -> None:
    kit.emit(shot)
    kit.emit(
        ev.FaultStep(
            t_ns=kit.clock.now_ns(),
            fault=step.id,
            kind="kill",
            stage="applied",
            ok=shot.sockets > 0,
            measured={"sessions": str(shot.sessions), "connections": str(shot.sockets)},
            detail="" if shot.sockets else "no connection was open",
        )
    )


def _not_applied(step: Step, why: str, kit: WaveKit) -> None:
    kit.emit(ev.FaultStep(t_ns=kit.clock.now_ns(), fault=step.id, kind="kill", stage="applied", ok=False, detail=why))
