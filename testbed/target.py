"""The target files of a bed: what a user of a real cluster would have written for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import yaml

from chaos.lab.embedded import Embedded, SimSpec, describe
from chaos.model.faults import FaultKind
from chaos.model.target import ServerSpec, Via
from testbed.folder import BIN, HERE, LOGS, HostFolder
from testbed.keys import USER
from testbed.plan import METRICS_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testbed.folder import Folder
    from testbed.plan import HostPlan, Plan


def parse(build: str, options: Mapping[str, str]) -> SimSpec:
    """The lab that was asked for; UsageError names what there is."""
    return Embedded().parse(build, options)


def write(folder: Folder, plan: Plan) -> None:
    """One file for each way to the engines."""
    for via in get_args(Via):
        folder.target(via).write_text(yaml.safe_dump(document(folder, plan, via), sort_keys=False, width=120))


def document(folder: Folder, plan: Plan, via: str) -> dict[str, Any]:
    """The whole file as data."""
    prefill, decode = (plan.by_role(role) for role in ("prefill", "decode"))
    nowhere = ServerSpec(url="http://127.0.0.1:1")  # the lab's clocks and allowances are wanted, not its addresses
    lab = describe(parse(plan.build, plan.options), nowhere, [nowhere], [nowhere])
    known = lab.model_dump(mode="json", include={"model", "timeouts", "gauge_lag", "time_scale", "content"})
    return {
        "version": 1,
        "name": "testbed",
        "about": "a small cluster in network namespaces on this machine",
        "environment": "staging",
        "engine": lab.engine,
        "router_engine": lab.router_engine,
        "via": via,
        "ssh": {
            "user": USER,
            "identity": str(folder.identity),
            "known_hosts": str(folder.known_hosts),
            "ssh_config": False,
        },
        "router": _node(plan.by_role("router")[0]),
        "prefill": [_node(host) for host in prefill],
        "decode": [_node(host) for host in decode],
        "allow": list(get_args(FaultKind)),
        **known,
    }


def _node(host: HostPlan) -> dict[str, Any]:
    here = HostFolder(HERE)
    metrics = {"metrics": f"http://{host.address}:{METRICS_PORT}/metrics"} if host.role == "router" else {}
    bootstrap = {"bootstrap_port": host.ports["bootstrap"]} if "bootstrap" in host.ports else {}
    file, command = str(LOGS / f"{host.name}.log"), {"command": f"{BIN / 'pd-logs'} {host.name}"}
    return {
        "name": host.name,
        "ssh": {"host": host.address},
        "url": host.url,
        **metrics,
        **bootstrap,
        "log": [file if host.source == "file" else command],
        "pidfile": str(here.pidfile(host.name)),
        "restart": f"{BIN / 'pd-node'} restart",
    }
