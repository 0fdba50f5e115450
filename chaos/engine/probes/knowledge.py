"""What packs know, laid out for the nodes of one deployment: wanted metrics, signatures, uses.

Shared by who asks a live deployment and who reads what people have collected of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.engine.probes.exposition import Wanted
from chaos.model import events as ev
from chaos.model.versions import in_range, version_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.model.pack import Pack, Signature


FREED_WITHIN = 1.2
"""An engine looks after its timeouts now and then, not all the time."""


def wanted_metrics(pack: Pack, role: ev.Role, version: str) -> tuple[Wanted, ...]:
    """The metrics to look for on a node of this role and version."""
    return tuple(
        Wanted(
            name=metric.name,
            kind=metric.kind,
            use=metric.use,
            # A version that no alias was written for may still use any of the names.
            exposed=metric.exposed_as(version) or metric.exposed_as(),
            where=tuple(metric.where.items()),
        )
        for metric in pack.metrics
        if role in metric.roles
    )


def known_signatures(pack: Pack, role: ev.Role, version: str) -> tuple[Signature, ...]:
    """The log lines that mean something on a node of this role and version."""
    return tuple(_as_of(version, signature) for signature in pack.signatures if role in signature.roles)


def _as_of(version: str, signature: Signature) -> Signature:
    """The signature as it holds in a version: where its bug is fixed already, the same line has another cause."""
    fixed = signature.fixed_in and version_key(version) is not None and in_range(version, since=signature.fixed_in)
    return signature.model_copy(update={"upstream": "", "fixed_in": ""}) if fixed else signature


def metric_uses(packs: Iterable[Pack], timeouts: Iterable[ev.EngineTimeout]) -> tuple[ev.MetricUse, ...]:
    """What every metric of these packs is good for, where the engine's timeouts are these."""
    lasts_s = {timeout.name: timeout.seconds for timeout in timeouts}
    uses = {
        metric.name: ev.MetricUse(
            name=metric.name,
            kind=metric.kind,
            use=metric.use,
            roles=tuple(metric.roles),
            holds_s=FREED_WITHIN * lasts_s.get(metric.freed_by or "", 0.0),
        )
        for pack in packs
        for metric in pack.metrics
    }
    return tuple(uses.values())


def thread_uses(packs: Iterable[Pack]) -> tuple[ev.ThreadUse, ...]:
    """Every thread that a node of these packs cannot serve without."""
    return tuple(
        ev.ThreadUse(name=thread.name, roles=tuple(thread.roles), side=thread.side, title=thread.title)
        for pack in packs
        for thread in pack.threads
    )
