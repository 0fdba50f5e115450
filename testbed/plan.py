"""What a bed consists of: its hosts, their addresses, the node on each, in a form that goes from process to process."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal

Role = Literal["laptop", "router", "prefill", "decode"]
Source = Literal["file", "command"]

NET = "10.77.0"
PREFIX = 24
LAPTOP = "laptop"
TIME_LIMIT_S = 4 * 3600.0  # a forgotten bed ends by itself
READY_TIMEOUT_S = 60.0  # for a host to come up, and as much as its node takes

HTTP_PORT = 30000
BOOTSTRAP_PORT = 8998
METRICS_PORT = 29000  # the router's
SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One host. `source` is how its node's log can be read: a file, or a command only."""

    name: str
    role: Role
    address: str
    source: Source = "file"

    @property
    def url(self) -> str:
        """Where its node listens."""
        return f"http://{self.address}:{HTTP_PORT}"

    @property
    def ports(self) -> dict[str, int]:
        """The ports of its node by use."""
        ports: dict[Role, dict[str, int]] = {
            "laptop": {},
            "router": {"http": HTTP_PORT, "metrics": METRICS_PORT},
            "prefill": {"http": HTTP_PORT, "bootstrap": BOOTSTRAP_PORT},
            "decode": {"http": HTTP_PORT},
        }
        return ports[self.role]


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole bed. `options` are those of the lab (`--set`), as text."""

    lab: str  # `sim@BUILD`, `sglang@VERSION`, `dynamo@VERSION`
    options: dict[str, str]
    hosts: tuple[HostPlan, ...]
    time_limit_s: float = TIME_LIMIT_S
    disk_mb: int = 0  # of each tmpfs of a host; 0: what the engine needs
    keep: tuple[str, ...] = ()  # folders of the machine that hosts must see
    patience_s: float = 60.0  # for a node to serve
    timezones: dict[str, str] = dataclasses.field(default_factory=dict)

    def host(self, name: str) -> HostPlan:
        """By name; KeyError when there is none."""
        return next((host for host in self.hosts if host.name == name), None) or _no_host(name, self)

    @property
    def ready_timeout_s(self) -> float:
        """For the whole bed: first the servers, then the router, which may have to warm all of them."""
        return 2 * (READY_TIMEOUT_S + self.patience_s)

    @property
    def kind(self) -> str:
        """What stands before the @."""
        return self.lab.partition("@")[0]

    @property
    def servers(self) -> tuple[HostPlan, ...]:
        """All but the laptop."""
        return tuple(host for host in self.hosts if host.role != LAPTOP)

    def by_role(self, role: Role) -> tuple[HostPlan, ...]:
        """The hosts of a role, in order."""
        return tuple(host for host in self.hosts if host.role == role)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The reverse of `to_json`."""
        raw = json.loads(text)
        raw["keep"] = tuple(raw["keep"])
        raw["hosts"] = tuple(HostPlan(**host) for host in raw["hosts"])
        return cls(**raw)


def _no_host(name: str, plan: Plan) -> HostPlan:
    raise KeyError(f"no host {name!r}; there are {', '.join(host.name for host in plan.hosts)}")


def lay_out(prefill: int, decode: int) -> tuple[HostPlan, ...]:
    """Laptop, router, prefills, decodes, each with an address; the log of decode-0 is read by a command."""
    names: list[tuple[Role, str]] = [("laptop", LAPTOP), ("router", "router")]
    names += [("prefill", f"prefill-{n}") for n in range(prefill)]
    names += [("decode", f"decode-{n}") for n in range(decode)]
    return tuple(
        HostPlan(name, role, f"{NET}.{at}", "command" if name == "decode-0" else "file")
        for at, (role, name) in enumerate(names, start=1)
    )
