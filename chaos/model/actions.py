"""Everything that a step may do: exactly one of these."""

from __future__ import annotations

from chaos.model.faults import AbortFrame, ForeignFrame, Kill, Poison, Restart, Sham, Signal
from chaos.model.network import NETWORK_KEYS, Delay, Loss, NetworkAction, Partition, PortBlock, RateLimit

NodeAction = Signal | Restart | ForeignFrame | AbortFrame | Partition | Loss | RateLimit | Delay | PortBlock
"""What acts on nodes or what lies between them; `kill` acts on our own clients."""

Action = Kill | NodeAction | Poison | Sham

ACTIONS = ("kill", "signal", "restart", *NETWORK_KEYS, "foreign_frame", "abort_frame", "poison", "sham")
"""The keys of a step that say what it does."""

__all__ = ["ACTIONS", "NETWORK_KEYS", "Action", "NetworkAction", "NodeAction"]
