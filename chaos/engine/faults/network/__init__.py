"""Faults of the network between hosts: made on one host, measured from both ends."""

from __future__ import annotations

from chaos.engine.faults.network.fault import NetworkFault
from chaos.engine.faults.network.permission import check_hosts, check_target

__all__ = ["NetworkFault", "check_hosts", "check_target"]
