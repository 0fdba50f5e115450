"""What may be done on the hosts: asked of the kernel there, and nothing touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chaos.engine.cleaning import STANDING
from chaos.engine.doctor.row import Row, State
from chaos.engine.faults.network.ends import address_of, shares_address
from chaos.engine.faults.network.permission import HINTS
from chaos.engine.faults.processes import may_signal, processes_now
from chaos.engine.hosts.host import HostLost, HostTrouble
from chaos.engine.leftovers import Item
from chaos.engine.probes.locate import NotLocated
from chaos.model.errors import Refused, Unfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chaos.engine.hosts import Host, Hosts
    from chaos.model.scenario import Privilege
    from chaos.model.target import Server, Target

ASK_S = 30.0
ROOT = "be root there: ssh: {user: root}, or {sudo: true}"
NETWORK = {"partition, loss, port-block": "partition", "rate": "rate", "delay": "delay"}
"""Faults of the network by what stands for them: the kernel has what the one needs, or it has not."""
_DOSES: dict[str, dict[str, float]] = {"rate": {"bit_per_s": 1_000_000}, "delay": {"delay_ms": 1.0}}
_KINDS = {"network": ("partition, loss, port-block", "rate", "network"), "netem": ("delay", "network")}


def signals(server: Server, host: Host) -> Row:
    """Whether the processes of a server may be signalled. Blocks."""
    try:
        processes = processes_now(host, server.spec)
        if may_signal(host, processes[0]):
            return Row.ok(
                server.id, "signal", f"{len(processes)} process{'es' * (len(processes) > 1)} may be signalled"
            )
    except (NotLocated, HostLost) as why:
        return Row(server.id, "signal", State.REFUSED, f"whose process? {why}", "see `process`")
    return Row(
        server.id, "signal", State.REFUSED, "this user may not send it signals", f"be the user of the server, or {ROOT}"
    )


def network(server: Server, target: Target, hosts: Hosts) -> Iterator[Row]:
    """Which faults of the network could be made between a server and its peers. Blocks."""
    peers = [one for one in target.servers if one.id != server.id and not shares_address(one, server)]
    if not peers:
        said = "every other server has the same address, so no network lies between them"
        yield Row(server.id, "network", State.REFUSED, said, HINTS["shared"])
        return
    host = hosts.at(server.id)
    for what, kind in NETWORK.items():
        try:
            host.call_now(
                "net.plan",
                timeout_s=ASK_S,
                kind=kind,
                run="doctor",
                number=0,
                near=[address_of(server)],
                far=[address_of(peers[0])],
                over_ssh=host.remote,
                **_DOSES.get(kind, {}),
            )
        except HostTrouble as trouble:
            if (what, trouble.kind) == (
                "delay",
                "kernel",
            ):  # the one that many kernels lack, and most scenarios need not
                fix = "a scenario with `delay` is refused there: it takes the module sch_netem"
                yield Row(server.id, what, State.NOTE, trouble.text, fix)
                continue
            yield Row(server.id, what, State.REFUSED, trouble.text, HINTS.get(trouble.kind, ""))
        except HostLost as lost:
            yield Row(server.id, what, State.PROBLEM, str(lost))
        else:
            yield Row.ok(server.id, what, "the kernel takes it")


def unmet_privileges(wanted: Sequence[Privilege], target: Target, hosts: Hosts) -> list[str]:
    """Which of the privileges that a scenario requires its hosts do not give, in words. Blocks."""
    rows: list[Row] = []
    for server in target.servers if wanted else ():
        if "signal" in wanted:
            rows.append(signals(server, hosts.at(server.id)))
        kinds = {kind for name in wanted for kind in _KINDS.get(name, ())}
        if kinds:
            rows += [row for row in network(server, target, hosts) if row.what in kinds]
        if "threads" in wanted and not _sees_threads(hosts.at(server.id)):
            rows.append(Row(server.id, "threads", State.REFUSED, "py-spy is not installed on its host"))
    return [f"{row.where}: {row.what}: {row.said}" for row in rows if row.state is not State.OK]


def _sees_threads(host: Host) -> bool:
    try:
        return not host.call_now("fitness", programs=["py-spy"])["missing"]
    except (HostLost, HostTrouble):
        return False


def take_back(target: Target, hosts: Hosts, progress: Callable[[str], None]) -> None:
    """Take back what runs that are gone left standing on the hosts of the servers. Blocks.

    What is still broken is no baseline: raises `Refused` where something does not go. A host heals itself; this is for
    what a guard that was killed, too, could not do.
    """
    stays = []
    for host in hosts.all:
        if not hosts.servers_at(host):
            continue  # what stands there is nothing that this deployment meets
        try:
            said = host.call_now("sweep", timeout_s=ASK_S, processes=False)
        except (HostLost, HostTrouble) as why:
            raise Unfit(f"{host.label} cannot be looked at for leftovers: {why}") from None
        for item in msgspec.convert(said, list[Item]):
            if item.kind not in STANDING or item.lives:
                continue
            told = f"{item.kind} {item.what} of run {item.run or '?'} on {host.label}"
            if item.gone:
                progress(f"an earlier run left something standing, taken back: {told}")
            else:
                stays.append(f"{told} ({item.why})")
    if stays:
        hint = "pdchaos sweep --target … says what to do by hand, and how to have it forgotten"
        raise Refused(f"earlier runs left what cannot be taken back at {target.name}: {'; '.join(stays)}", hint=hint)
