"""Faults of the network between nodes, as a scenario says them: cut off, lossy, slow, late, one port closed.

All of them are made on the hosts of `where`, between them and the hosts of their peers, and last as long as the
step's `for`, else to the end of the run. A host is known by its address: whatever else is on it shares its fate. SSH
always passes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from chaos.model.faults import FaultKind, Mode, Where
from chaos.model.section import Section
from chaos.model.units import Bandwidth, Duration, Percent, shown, told_bandwidth, wrong

SSH_PORT = 22
LEAST_BIT_PER_S = 64_000
"""Slower than this a short probe would not get through at all."""
MOST_BIT_PER_S = 32_000_000_000
"""The kernel's interface counts bytes per second in 32 bits."""


class Peers(Where):
    """As `where`, and all of them unless `mode` says otherwise."""

    mode: Mode = "all"


class Partition(Section):
    """No packet passes between nodes and their peers; or only in one `direction`, as seen from `where`."""

    where: Where
    peers: Peers = Field(alias="from")
    direction: Literal["both", "in", "out"] = "both"

    kind: ClassVar[str] = "partition"
    permission: ClassVar[FaultKind] = "network"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        only = {"both": "", "in": ", nothing comes in", "out": ", nothing goes out"}[self.direction]
        return f"partition of {self.where.told} from {self.peers.told}{only}"


class Loss(Section):
    """Of the packets that come to nodes from their peers so many, chosen at random, are lost."""

    where: Where
    peers: Peers = Field(alias="from")
    percent: Percent

    kind: ClassVar[str] = "loss"
    permission: ClassVar[FaultKind] = "network"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        return f"{self.percent:g} % loss on the way from {self.peers.told} to {self.where.told}"


class RateLimit(Section):
    """What goes from nodes to their peers is held to a rate, that of all peers of a host together."""

    where: Where
    peers: Peers = Field(alias="to")
    rate: Bandwidth

    kind: ClassVar[str] = "rate"
    permission: ClassVar[FaultKind] = "network"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        return f"{told_bandwidth(self.rate)} from {self.where.told} to {self.peers.told}"


class Delay(Section):
    """What goes from nodes to their peers arrives later by `delay`, give or take `jitter`."""

    where: Where
    peers: Peers = Field(alias="to")
    delay: Duration
    jitter: Duration = 0.0

    kind: ClassVar[str] = "delay"
    permission: ClassVar[FaultKind] = "network"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        more = f" (± {self.jitter * 1e3:g} ms)" if self.jitter else ""
        return f"{self.delay * 1e3:g} ms{more} later from {self.where.told} to {self.peers.told}"


def _port(value: object) -> object:
    if value in ("bootstrap", "http") or (
        isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535
    ):
        return value
    raise wrong(f"must be bootstrap, http or a port from 1 to 65535, not {shown(value)}")


class PortBlock(Section):
    """A port of nodes (the engine's `http` or `bootstrap` port, or a number) does not answer their peers any more."""

    where: Where
    port: Annotated[
        int | str,
        BeforeValidator(_port),
        WithJsonSchema(
            {"anyOf": [{"enum": ["bootstrap", "http"]}, {"type": "integer", "minimum": 1, "maximum": 65535}]}
        ),
    ]
    peers: Peers = Field(alias="from")

    kind: ClassVar[str] = "port-block"
    permission: ClassVar[FaultKind] = "network"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        port = f"port {self.port}" if isinstance(self.port, int) else f"{self.port} port"
        return f"{port} of {self.where.told} blocked for {self.peers.told}"


NetworkAction = Partition | Loss | RateLimit | Delay | PortBlock
NETWORK_KEYS = ("partition", "loss", "rate", "delay", "port_block")
"""The keys of a step under which these stand."""
