"""What every kind of lab offers, whatever runs behind it: listed, installed where need be, asked for, started, used.

A kind is an object that satisfies `LabKind` and stands in `chaos.lab.catalogue.KINDS`; nothing else asks which it is.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from chaos.model.target import ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

RUN_ID_VARIABLE = "PDCHAOS_RUN"  # in every node's environment, so that leftovers can be found
LOOPBACK = "127.0.0.1"
_TAIL_LINES = 15


# ------------------------------------------------------------------------------------------------ as listed


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """A build or version as listed."""

    name: str
    about: str
    version: str
    upstream: str = ""
    fixed_in: str = ""


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """An option for `--set`."""

    name: str
    default: str
    about: str


@dataclass(frozen=True, slots=True)
class LabInfo:
    """A lab as listed by `pdchaos lab list`; `standins` names everything in it that is not the untouched engine."""

    name: str
    kind: str
    about: str
    upstream: str
    builds: tuple[BuildInfo, ...]
    options: tuple[OptionInfo, ...]
    standins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Installed:
    """One installed version; the size is its own, without what versions share."""

    version: str
    folder: Path
    size_bytes: int


# ------------------------------------------------------------------------------------------------ as asked for


class Sizes(Protocol):
    """What the settings of every lab have."""

    @property
    def prefill(self) -> int:
        """The number of prefill nodes."""

    @property
    def decode(self) -> int:
        """The number of decode nodes."""


class LabSpec(ABC):
    """A lab as asked for on the command line, ready to be started."""

    kind: str
    build: str
    settings: Sizes
    patience_s: ClassVar[float] = 60.0
    """How long a start may take on a busy machine."""
    variants: ClassVar[tuple[str, ...]] = ()
    """What else its prefill and decode nodes can be restarted as (`restart: {as: …}`)."""
    bootstraps: ClassVar[bool] = True
    """Whether its target tells a bootstrap port of each prefill."""

    @property
    def title(self) -> str:
        """`lab:sim`: what a journal may say; the build is not in it."""
        return f"lab:{self.kind}"

    @abstractmethod
    def describe(self, router: ServerSpec, prefill: list[ServerSpec], decode: list[ServerSpec]) -> Target:
        """The lab as a target file would describe it."""

    def outline(self) -> Target:
        """The lab as a target before it is started: every address and process is a placeholder."""
        nowhere = ServerSpec(url=f"http://{LOOPBACK}:1", pid=1)
        prefill = nowhere.model_copy(update={"bootstrap_port": 1}) if self.bootstraps else nowhere
        return self.describe(nowhere, [prefill] * self.settings.prefill, [nowhere] * self.settings.decode)

    @abstractmethod
    def prepare(self, folder: Path, run_id: str) -> RunningLab:
        """The lab, of which nothing runs yet."""

    def start(self, folder: Path, progress: Callable[[str], None], *, run_id: str) -> RunningLab:
        """Start every process and return once all serve; LabError carries the tail of a failed one's log."""
        lab = self.prepare(folder, run_id)
        try:
            lab.launch(progress)
        except BaseException:
            lab.stop()
            raise
        return lab


class RunningLab(ABC):
    """A lab that serves. Leaving the context, or `stop`, ends every process of it."""

    spec: LabSpec

    @abstractmethod
    def launch(self, progress: Callable[[str], None]) -> None:
        """Start every process and return once all serve; whoever calls it stops the lab when that fails."""

    @property
    def name(self) -> str:
        """`lab:sim`."""
        return self.spec.title

    @property
    @abstractmethod
    def pids(self) -> list[int]:
        """Process ids of the nodes, router first; a restarted node has a new one."""

    @property
    @abstractmethod
    def target(self) -> Target:
        """The lab as a target file would describe it."""

    @abstractmethod
    def restart(self, node: str, variant: str | None = None) -> None:
        """End a node such as `prefill-0` if it still runs, start it anew in its place; LabError if that fails.

        `variant` is one of the kind's variants; the next plain restart undoes it.
        """

    @abstractmethod
    def reap(self) -> None:
        """Take note of nodes that have ended, so that they are no zombies."""

    @abstractmethod
    def stop(self) -> list[int]:
        """End every process of the lab; the ids of those that would not die. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


# ------------------------------------------------------------------------------------------------ the kinds themselves


class Installer(Protocol):
    """Brings versions of an engine onto this machine, and takes them off it."""

    def install(self, version: str, progress: Callable[[str], None]) -> None:
        """Install a version; what an earlier, interrupted attempt left is used or replaced. LabError if it fails."""

    def remove(self, version: str) -> None:
        """Remove a version, and what only it needed; UsageError when it is not installed."""

    def installed(self) -> list[Installed]:
        """Every version that is completely installed."""

    @property
    def shared_bytes(self) -> int:
        """What all installed versions share."""


class LabKind(Protocol):
    """One kind of lab."""

    @property
    def name(self) -> str:
        """What stands before the @."""

    @property
    def installer(self) -> Installer | None:
        """Who installs versions; None when there is nothing to install."""

    def info(self) -> LabInfo:
        """The kind as listed."""

    def parse(self, build: str, options: Mapping[str, str]) -> LabSpec:
        """A lab of this kind; `build` is what follows the @, or empty. UsageError names the nearest thing there is."""


def suggest(word: str, known: list[str]) -> str:
    """A hint at what was probably meant."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"


def log_tail(path: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log, or that there is nothing in it."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        return f"({error})"
    return "\n".join(text.splitlines()[-lines:]) or "(its log is empty)"
