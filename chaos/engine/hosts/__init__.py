"""Where the servers of a target are, and how to look at them and act on them there."""

from __future__ import annotations

from chaos.engine.hosts.here import Here
from chaos.engine.hosts.host import Host, HostLost, HostTrouble
from chaos.engine.hosts.hosts import Hosts

__all__ = ["Here", "Host", "HostLost", "HostTrouble", "Hosts"]
