"""Turns `--target` into a deployment: a file that names one, or a lab that is started for this run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chaos import library
from chaos.engine.faults.restarts import CommandRestarter
from chaos.engine.fresh import restart_deployment
from chaos.engine.hosts import Hosts
from chaos.lab.provider import outline_lab, parse_lab, start_lab
from chaos.model.errors import LabError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from chaos.engine.hosts import Host
    from chaos.engine.ports import Restarter
    from chaos.lab.provider import LabSpec, RunningLab
    from chaos.model.target import Target

LAB_PREFIX = "lab:"


class OpenTarget(Protocol):
    """A target while a run lasts."""

    kind: str  # what the journal calls it: a lab without its build, or the name in the file; never a host

    @property
    def standing(self) -> Target | None:
        """Where it is, when it stands without us, so that others may use it, too; None for a lab of this run's own."""

    @property
    def outlined(self) -> Target:
        """As far as it is known without starting anything; of a lab every address and process is a placeholder."""

    @property
    def restarter(self) -> Restarter:
        """Who can restart its nodes."""

    def start(self, folder: Path, progress: Callable[[str], None], hosts: Hosts | None = None) -> Target:
        """Bring it up, if it is ours to bring up, and say where it is; `hosts` where it stands already."""

    def close(self) -> str:
        """Take down what `start` brought up; says what would not go, else is empty. May be called twice."""


class FileTarget:
    """A deployment that somebody else runs; `anew`: as they say how, it is restarted as a whole at the start."""

    def __init__(self, spec: Target, *, anew: bool = False) -> None:
        self.kind = spec.name  # what its owner calls it
        self.spec = spec
        self._anew = anew

    @property
    def standing(self) -> Target:
        """As the file says."""
        return self.spec

    @property
    def outlined(self) -> Target:
        """As the file says."""
        return self.spec

    @property
    def restarter(self) -> Restarter:
        """The commands in the file."""
        return CommandRestarter.of(self.spec)

    def start(self, folder: Path, progress: Callable[[str], None], hosts: Hosts | None = None) -> Target:  # noqa: ARG002
        """Nothing to bring up, unless it is to be started anew."""
        if self._anew:
            restart_deployment(self.spec, progress, hosts or Hosts.here(self.spec))
        return self.spec

    def close(self) -> str:
        """Nothing to take down."""
        return ""


class LabTarget:
    """A lab that lives as long as the run."""

    def __init__(self, spec: LabSpec) -> None:
        self.kind = spec.title
        self._spec = spec
        self._lab: RunningLab | None = None

    @property
    def standing(self) -> None:
        """It lives no longer than the run."""
        return

    @property
    def outlined(self) -> Target:
        """As its settings say."""
        return outline_lab(self._spec)

    @property
    def restarter(self) -> Restarter:
        """The lab itself."""
        return self

    def can_restart(self, node: str, variant: str | None = None) -> bool:  # noqa: ARG002
        """A lab can start every node that it started, and as the variants that it has."""
        return variant is None or variant in self._spec.variants

    def plainly(self, node: str) -> None:  # noqa: ARG002
        """Nobody but we can start a node of it, and it ends with us."""
        return

    def restart(self, node: str, host: Host, timeout_s: float, variant: str | None = None) -> None:  # noqa: ARG002
        """Start a node anew."""
        if self._lab is None:
            raise LabError(f"{self.kind} is not up, so {node} cannot be restarted")
        self._lab.restart(node, variant)  # which knows itself how long its nodes may take

    def start(self, folder: Path, progress: Callable[[str], None], hosts: Hosts | None = None) -> Target:  # noqa: ARG002
        """Start the lab; its nodes' logs go into `folder`."""
        self._lab = start_lab(self._spec, folder, progress)
        return self._lab.target

    def close(self) -> str:
        """Stop it."""
        lab, self._lab = self._lab, None
        left = lab.stop() if lab else []
        return f"lab processes that did not end: {', '.join(map(str, left))}" if left else ""


def open_target(text: str, options: Sequence[str], *, anew: bool = False) -> FileTarget | LabTarget:
    """The target behind `--target`; raises `UserError` for what cannot be one. A lab is always started anew."""
    if text.startswith(LAB_PREFIX):
        return LabTarget(parse_lab(text.removeprefix(LAB_PREFIX), parse_options(options)))
    if options:
        raise UsageError("--set is for labs; a target file says everything itself", hint="edit the file instead")
    return FileTarget(library.load_target(text).value, anew=anew)


def parse_options(options: Sequence[str]) -> dict[str, str]:
    """`["prefill=2"]` as a mapping; raises `UsageError` for anything else."""
    parsed = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"--set {option}: not OPTION=VALUE", hint="for example --set prefill=2")
        parsed[name] = value
    return parsed
