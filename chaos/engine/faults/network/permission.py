"""What a network fault needs of a target and of its hosts, checked before anything is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine.faults.network.ends import address_of, ends, is_loopback, shares_address
from chaos.engine.faults.network.fault import KINDS
from chaos.engine.faults.select import matching
from chaos.engine.hosts import HostLost, HostTrouble
from chaos.model.actions import NetworkAction
from chaos.model.errors import Refused, Unfit
from chaos.model.network import PortBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.engine.hosts import Hosts
    from chaos.engine.hosts.host import Host
    from chaos.model.scenario import Scenario
    from chaos.model.target import Server, Target

ASK_S = 30.0
HINTS = {
    "denied": "be root there: `ssh: {sudo: true}` or `ssh: {user: root}` in the target file; here run as root",
    "missing": "install it there; pdchaos installs nothing",
    "shared": "give each server the `address` by which the others reach it; nodes on one host have no network between "
    "them, nor has a lab",
    "unknown-name": "give the server its `address` in the target file, as an IP address",
    "no-route": "give the server the `address` by which the others reach it",
    "taken": "an interface is shaped by one at a time; `pdchaos sweep --target FILE` finds what pdchaos left",
    "ssh-unknown": "the sshd there must set SSH_CONNECTION; without it nobody knows what must not be cut",
}
"""What to do about each kind of trouble."""


def check_target(step: str, action: NetworkAction, found: Sequence[Server], target: Target) -> None:
    """Raise `Refused` when the target file alone shows that it cannot be done."""
    peers = matching(action.peers, target.servers)
    if not peers:
        there = ", ".join(one.id for one in target.servers if one.role == action.peers.role) or "none"
        what = f"{action.peers.role} node {action.peers.node or ''}".rstrip()
        raise Refused(f"{step}: {target.name} has no {what}", hint=f"it has: {there}")
    for near in found:
        for far in peers:
            if near != far and shares_address(near, far):
                same = "this host's own" if is_loopback(address_of(near)) else "the same"
                raise Refused(
                    f"{step}: {near.id} and {far.id} are reached at {same} address, so no network lies between them",
                    hint=HINTS["shared"],
                )
        if [near] == list(peers):
            raise Refused(f"{step}: {near.id} has no peer but itself", hint="name another role, or another node")
        if isinstance(action, PortBlock) and action.port == "bootstrap" and near.spec.bootstrap_port is None:
            hint = "give the server its `bootstrap_port` in the target file"
            raise Refused(f"{step}: the bootstrap port of {near.id} is not known", hint=hint)


def check_hosts(scenario: Scenario, target: Target, hosts: Hosts) -> None:
    """Raise `Refused` when a host that may be chosen cannot do it: its own kernel is asked. Blocks; touches nothing."""
    for step in scenario.timeline:
        if isinstance(step.action, NetworkAction):
            _check_hosts(step.id, step.action, target, hosts)


def _check_hosts(step: str, action: NetworkAction, target: Target, hosts: Hosts) -> None:
    found, peers = matching(action.where, target.servers), matching(action.peers, target.servers)
    for end in ends(found, peers, hosts):
        try:
            _check_end(step, action, end.host, end.near, [peer for peer in peers if peer not in end.near])
        except HostTrouble as why:
            names = ", ".join(server.id for server in end.near)
            message = f"{step}: a {action.kind} cannot be made on the host of {names}: {why.text}"
            raise Refused(message, hint=HINTS.get(why.kind, "")) from None
        except HostLost as why:
            raise Unfit(f"{step}: the host of {end.near[0].id} cannot be asked: {why}") from None


def _check_end(step: str, action: NetworkAction, host: Host, near: Sequence[Server], far: Sequence[Server]) -> None:
    """Raises Refused, HostTrouble, HostLost."""
    for server in near:
        if not host.remote and not host.call_now("net.is_here", timeout_s=ASK_S, name=address_of(server)):
            raise Refused(
                f"{step}: {server.id} is not on this machine, and the target file does not say how to reach its host",
                hint="give the server `ssh: {host: …}` in the target file",
            )
    order = KINDS[type(action)](action).order(tuple(near))  # type: ignore[call-arg]
    host.call_now(
        "net.plan",
        timeout_s=ASK_S,
        run="check",
        number=0,
        near=[address_of(server) for server in near],
        far=[address_of(server) for server in far],
        over_ssh=host.remote,
        **order,
    )
