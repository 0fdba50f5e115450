"""The target files of a bed: what a user of a real cluster would have written for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import yaml

from chaos.lab.catalogue import parse_lab
from chaos.model.faults import FaultKind
from chaos.model.target import Via
from testbed.folder import BIN, HERE, LOGS, HostFolder
from testbed.keys import USER
from testbed.plan import BOOTSTRAP_PORT, METRICS_PORT

if TYPE_CHECKING:
    from testbed.folder import Folder
    from testbed.plan import HostPlan, Plan


_KNOWN = {"model", "timeouts", "gauge_lag", "time_scale", "content"}
_ASKED_DIRECTLY = ("sim", "sglang")
"""Engines whose nodes are asked past the router, and whose router has its metrics on a port of its own."""


def write(folder: Folder, plan: Plan) -> None:
    """One file for each way to the engines."""
    for via in get_args(Via):
        folder.target(via).write_text(yaml.safe_dump(document(folder, plan, via), sort_keys=False, width=120))


def document(folder: Folder, plan: Plan, via: str) -> dict[str, Any]:
    """The whole file as data."""
    prefill, decode = (plan.by_role(role) for role in ("prefill", "decode"))
    lab = parse_lab(plan.lab, plan.options).outline()  # its clocks are wanted, its addresses are none
    known = lab.model_dump(mode="json", include=_KNOWN, exclude_none=True)
    direct = plan.kind in _ASKED_DIRECTLY
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
        "router": _node(plan.by_role("router")[0], direct=direct),
        "prefill": [_node(host, direct=direct) for host in prefill],
        "decode": [_node(host, direct=direct) for host in decode],
        "allow": list(get_args(FaultKind)),
        **known,
    }


def _node(host: HostPlan, *, direct: bool) -> dict[str, Any]:
    here = HostFolder(HERE)
    more: dict[str, Any] = {}
    if direct and host.role == "router":
        more["metrics"] = f"http://{host.address}:{METRICS_PORT}/metrics"
    if direct and host.role == "prefill":
        more["bootstrap_port"] = BOOTSTRAP_PORT
    file, command = str(LOGS / f"{host.name}.log"), {"command": f"{BIN / 'pd-logs'} {host.name}"}
    return {
        "name": host.name,
        "ssh": {"host": host.address},
        "url": host.url,
        **more,
        "log": [file if host.source == "file" else command],
        "pidfile": str(here.pidfile(host.name)),
        "restart": f"{BIN / 'pd-node'} restart",
    }
