"""What a target allows, and what a fault needs of it, is checked before anything is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.agent import blackhole
from chaos.engine.faults import network
from chaos.engine.faults.processes import NoSuchRank, may_signal, processes_now, rank_of
from chaos.engine.faults.select import matching
from chaos.engine.hosts import HostLost
from chaos.engine.probes.locate import UNTOLD, NotLocated, selectors
from chaos.model.actions import NetworkAction
from chaos.model.errors import Refused, Unfit
from chaos.model.faults import AbortFrame, ForeignFrame, Kill, Poison, Restart, Sham, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chaos.engine.hosts import Hosts
    from chaos.engine.ports import Restarter
    from chaos.model.actions import NodeAction
    from chaos.model.pack import Pack
    from chaos.model.scenario import Scenario
    from chaos.model.target import Server, Target


FINDABLE = (
    "give it a pidfile, systemd, docker, cmdline or port in the target file, and `ssh` if it is on another machine"
)


def demand(scenario: Scenario, target: Target, restarter: Restarter | None = None) -> None:
    """Raise `Refused` when a step needs what the target file does not allow or does not tell."""
    actions = [step.action for step in scenario.timeline]
    wanted = {action.permission for action in actions if action.permission is not None}
    needed = sorted(wanted - set(target.allow))
    if needed:
        raise Refused(
            f"{target.name} does not allow: {', '.join(needed)}",
            hint=f"add it to the target file: allow: [{', '.join([*target.allow, *needed])}]",
        )
    for step in scenario.timeline:
        if isinstance(step.action, Kill) and step.action.how == "blackhole":
            _demand_black_hole(step.id, target)
        if isinstance(step.action, Kill | Poison | Sham):
            continue
        found = _nodes(step.id, step.action, target)
        for message, hint in _lacks(step.action, found, restarter):
            raise Refused(f"{step.id}: {message}", hint=hint)
        if isinstance(step.action, NetworkAction):
            network.check_target(step.id, step.action, found, target)


def reach(scenario: Scenario, target: Target, packs: Mapping[str, Pack], hosts: Hosts) -> None:
    """Raise `Refused` when a step cannot act on its processes or on the network of its hosts. Blocks."""
    network.check_hosts(scenario, target, hosts)
    for step in scenario.timeline:
        action = step.action
        if not isinstance(action, Signal | Restart):
            continue
        for server in matching(action.where, target.servers):
            host = hosts.at(server.id)
            try:
                processes = processes_now(host, server.spec)
            except NotLocated as why:
                raise Refused(
                    f"{step.id}: the process of {server.id} cannot be found: {why}",
                    hint=FINDABLE,
                ) from None
            except HostLost as why:
                raise Unfit(f"{step.id}: the process of {server.id} cannot be looked for: {why}") from None
            if isinstance(action, Signal) and action.where.rank is not None:
                pack = packs[target.router_engine if server.role == "router" else target.engine]
                try:
                    rank_of(processes, action.where.rank, pack.rank_process)
                except NoSuchRank as why:
                    hint = "`child` names a process by its title"
                    raise Refused(f"{step.id}: {server.id} {why}", hint=hint) from None
            if isinstance(action, Signal) and not may_signal(host, processes[0]):
                raise Refused(
                    f"{step.id}: this user may not send signals to {server.id}",
                    hint="be the user of the servers there, or root (`ssh: {sudo: true}`)",
                )


def _demand_black_hole(step: str, target: Target) -> None:
    """Raise `Refused` when agents cannot make a black hole of a connection; of another machine only trying tells."""
    if target.via == "tunnel" and target.ssh_of(target.router) is not None:
        raise Refused(
            f"{step}: a black hole takes the TCP connections of the clients, and with `via: tunnel` they are a relay's",
            hint="use `via: remote`, or how: stall",
        )
    why = "" if target.via == "remote" else blackhole.why_impossible()
    if why:
        raise Refused(
            f"{step}: no connection of this machine can be made a black hole: {why}",
            hint="it takes Linux and socket filters; how: stall needs neither",
        )


def _nodes(step: str, action: NodeAction, target: Target) -> Sequence[Server]:
    where, servers = action.where, target.servers
    found = matching(where, servers)
    if not found:
        there = ", ".join(one.id for one in servers if one.role == where.role) or "none"
        raise Refused(
            f"{step}: {target.name} has no {where.role} node {where.node or ''}".rstrip(), hint=f"it has: {there}"
        )
    if where.number(len(found)) > len(found):
        raise Refused(
            f"{step}: {where.told} are wanted, but {target.name} has {len(found)}",
            hint=f"a lab: --set {where.role}={where.number(len(found))}",
        )
    return found


def _lacks(action: NodeAction, found: Sequence[Server], restarter: Restarter | None) -> Iterator[tuple[str, str]]:
    for server in found:
        if isinstance(action, Restart):
            yield from _lacks_restart(server.id, action.variant, restarter)
        if isinstance(action, Signal | Restart) and not selectors(server.spec):
            yield f"the process of {server.id} cannot be found: {UNTOLD}", FINDABLE
        if isinstance(action, ForeignFrame | AbortFrame) and server.spec.bootstrap_port is None:
            yield (
                f"the control socket of {server.id} cannot be found",
                "give the server its `bootstrap_port` in the target file",
            )


def _lacks_restart(node: str, variant: str | None, restarter: Restarter | None) -> Iterator[tuple[str, str]]:
    if not (restarter and restarter.can_restart(node)):
        yield f"nothing says how to restart {node}", "give the server `restart: COMMAND` in the target file"
    elif not restarter.can_restart(node, variant):
        hint = f"give the server `restart_as: {{{variant}: COMMAND}}` in the target file, or aim at a lab that has it"
        yield f"nothing says how to restart {node} as {variant}", hint
