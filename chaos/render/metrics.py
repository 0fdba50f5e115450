"""Which scraped series are shown as what: the packs say it in `deployment.seen`, no metric is known here by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.model.events import DeploymentSeen, MetricPurpose


class Uses:
    """What each metric of each node is good for, as far as the deployment was seen."""

    def __init__(self) -> None:
        self._roles: dict[str, str] = {}
        self._uses: dict[str, tuple[MetricPurpose, tuple[str, ...]]] = {}

    def learn(self, seen: DeploymentSeen) -> None:
        """Take over what the packs say."""
        self._roles = {node.id: node.role for node in seen.nodes}
        self._uses = {metric.name: (metric.use, metric.roles) for metric in seen.metrics}

    def of(self, node: str, name: str) -> MetricPurpose:
        """The use of a metric on a node; `info` for one that means nothing there: both roles export all PD gauges."""
        use, roles = self._uses.get(name, ("info", ()))
        if roles and self._roles.get(node) not in roles:
            return "info"
        return use


def short_name(name: str, node: str) -> str:
    """A queue's name without its node's role and without the word queue: `bootstrap` for `prefill_bootstrap_queue`."""
    role = node.split("-", 1)[0]
    short = name.removeprefix(f"{role}_").removesuffix("_queue")
    return short.replace("_", " ") or name
