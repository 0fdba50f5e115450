"""What real engines have in common: a command line and an environment from their lab, an installation that is used."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from chaos.lab.kinds import RUN_ID_VARIABLE
from chaos.lab.real import cache
from testbed.engines.kind import Engine, Started
from testbed.errors import BedError
from testbed.folder import HERE, HostFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from chaos.lab.kinds import Sizes
    from chaos.lab.real.kind import RealSpec
    from chaos.lab.real.versions import VersionedInstaller
    from testbed.engines.kind import Streams

SCRATCH = HostFolder(HERE).scratch
_POLL_S = 0.2


class RealEngine(Engine):
    """Started as its lab starts it."""

    disk_mb = 2048  # an engine's shared memory

    def __init__(self, spec: RealSpec[Sizes, VersionedInstaller]) -> None:
        """UsageError when the version is not installed."""
        spec.installer.require(spec.build)
        self._spec = spec

    def needs(self) -> tuple[Path, ...]:
        """The installation, and the Python that its environments were made from."""
        base = self._spec.installer.python.resolve().parent.parent
        return (cache.cache_root(), base)

    def hold(self) -> ExitStack:
        """Every part."""
        held = ExitStack()
        for part in self._spec.parts:
            held.enter_context(cache.use(part.folder))
        return held


def spawn(
    command: Sequence[str], environment: Mapping[str, str], streams: Streams, serves: Callable[[], bool]
) -> Started:
    """Start a node; `serves` is asked again and again."""
    out, err = streams
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        # what bears a run's id is pdchaos's own, and may be ended by it
        env={name: value for name, value in environment.items() if name != RUN_ID_VARIABLE},
        cwd=SCRATCH,
        start_new_session=True,
    )

    def wait(timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while process.returncode is None and time.monotonic() < deadline:
            if serves():
                return True
            time.sleep(_POLL_S)
        return False

    return Started(process, wait)


def failed(node: str, what: str) -> BedError:
    """What went wrong with a node."""
    return BedError(f"{node}: {what}")
