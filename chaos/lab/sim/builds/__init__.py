"""The named variants of the engine. To add one, add an entry to a module here; `docs/lab.md` tells how.

A `Build` says what it is (about, upstream reference, version) and which parts differ from a healthy 0.5.16. Each part
is a class; a bug is a small subclass, beside its entry, that overrides the one method where upstream went wrong.
Nothing outside this package asks for a build's name, and no name of a build is ever logged or served. A build is worth
having when a real release behaved so: name the upstream change, and the release that mended it. A test that shows the
bug from outside belongs to each (tests/lab), and its ground truth (bench/ground_truth.yaml).

- `aborts` what becomes of a request whose client has left; `peers` of a node whose peer died, froze or came back
- `processes` ranks and their processes; `router` the router; `load` what load alone brings about
- `transfers` KV on its way from prefill to decode
- `calm` healthy variants that look sick
"""

from __future__ import annotations

from chaos.lab.sim.builds import aborts, calm, load, peers, processes, router, transfers
from chaos.lab.sim.builds.build import Build

__all__ = ["BUILDS", "HEALTHY", "Build"]

HEALTHY = "healthy"

BUILDS: dict[str, Build] = {
    build.name: build
    for build in (
        Build(name=HEALTHY, about="no known bug in the abort path", version="0.5.16"),
        *aborts.BUILDS,
        *peers.BUILDS,
        *processes.BUILDS,
        *router.BUILDS,
        *load.BUILDS,
        *transfers.BUILDS,
        *calm.BUILDS,
    )
}
