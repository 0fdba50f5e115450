"""Everything that observes a deployment and ourselves. No rule about outcomes lives here."""

from chaos.engine.probes.bundle import Probes
from chaos.engine.probes.discover import Discovery, FoundNode, discover
from chaos.engine.probes.http import make_http, transport_name

__all__ = ["Discovery", "FoundNode", "Probes", "discover", "make_http", "transport_name"]
