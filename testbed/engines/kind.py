"""What an engine must tell so that a host's keeper can run a node of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from testbed.plan import HostPlan

    Streams = tuple[IO[bytes], IO[bytes]]


@dataclass(frozen=True, slots=True)
class Started:
    """A node's process. `serves` waits for at most so many seconds and says whether it takes requests."""

    process: subprocess.Popen[bytes]
    serves: Callable[[float], bool]


class Engine(ABC):
    """An engine as asked for by a plan."""

    patience_s: ClassVar[float] = 60.0  # how long a node may take until it serves
    disk_mb: ClassVar[int] = 32  # of each tmpfs of a host
    reload_s: float = 0.0  # how long a restarted node takes before it begins to start

    @abstractmethod
    def start(self, host: HostPlan, streams: Streams, logs: tuple[Path, Path]) -> Started:
        """Start the node of this host, in a session of its own; `streams` write to `logs`."""

    @abstractmethod
    def warm(self) -> None:
        """Bring about what only the first request does; called on the router's host once all nodes serve."""

    def needs(self) -> tuple[Path, ...]:
        """Folders of this machine that hosts must see; LabError when something is not installed."""
        return ()

    def hold(self) -> ExitStack:
        """Keep what is installed from being removed while the bed is up."""
        return ExitStack()
