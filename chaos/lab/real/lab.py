"""A running lab of a real engine: what it uses, its nodes' processes, and how all of it ends.

An engine's own lab says where its nodes listen, what runs there, and when they serve and are warm.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from chaos.lab.kinds import LOOPBACK, RunningLab, suggest
from chaos.lab.real import cache
from chaos.lab.real.commands import Place
from chaos.lab.real.namespace import Enclosure, enclose
from chaos.lab.real.node import Node, Order
from chaos.lab.real.scratch import scratch_folder
from chaos.model.errors import LabError
from chaos.model.target import LogFrom, ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chaos.lab.kinds import Sizes
    from chaos.lab.real.kind import RealSpec
    from chaos.lab.real.versions import VersionedInstaller

    Progress = Callable[[str], None]

_Place = TypeVar("_Place", bound=Place)


class RealLab(RunningLab, Generic[_Place]):
    """A lab that serves."""

    spec: RealSpec[Sizes, VersionedInstaller]

    def __init__(self, spec: RealSpec[Sizes, VersionedInstaller], folder: Path, run_id: str) -> None:
        self.spec = spec
        self._folder = folder.absolute()
        self._run_id = run_id
        self._places: list[_Place] = []  # router first
        self._nodes: dict[str, Node] = {}  # by name; also what is nobody's place
        self._enclosure = Enclosure("", LOOPBACK)
        self._undo = contextlib.ExitStack()

    # ------------------------------------------------------------------ what others see

    @property
    def pids(self) -> list[int]:
        """Main process ids, router first."""
        return [self._nodes[place.name].pid for place in self._places]

    @property
    def target(self) -> Target:
        """Addresses, logs and pid files."""
        by_role = {
            role: [self._spec_of(place) for place in self._places if place.role == role]
            for role in ("router", "prefill", "decode")
        }
        return self.spec.describe(by_role["router"][0], by_role["prefill"], by_role["decode"])

    def _spec_of(self, place: _Place) -> ServerSpec:
        return ServerSpec(
            url=place.url,
            log=[LogFrom(file=str(self._log(place.name)))],
            pidfile=str(self._pidfile(place.name)),
            name=place.name,
        )

    def restart(self, node: str, variant: str | None = None) -> None:
        """Kill what is left of a node and start it anew; it serves again when this returns, warm or not."""
        place = next((place for place in self._places if place.name == node), None)
        if place is None:
            raise LabError(f"the lab has no node {node!r}", hint=suggest(node, [place.name for place in self._places]))
        left = self._nodes[node].stop()
        if left:
            raise LabError(f"{node}: processes that did not end: {', '.join(map(str, left))}")
        self._run_place(place, variant)
        self._await([place], lambda _: None)

    def reap(self) -> None:
        """Wardens bury their dead."""

    def stop(self) -> list[int]:
        """Kill every process, all nodes at once."""
        for node in self._nodes.values():
            node.let_go()
        left = [pid for node in self._nodes.values() for pid in node.stop()]
        left += self._enclosure.close()
        self._undo.close()
        return left

    # ------------------------------------------------------------------ for the engine's own lab

    def _move_in(self, progress: Progress) -> Path:
        """Keep what is used from being removed, and take a network namespace; the lab's scratch folder."""
        for part in self.spec.parts:
            self._undo.callback(cache.use(part.folder).close)
        scratch = self._undo.enter_context(scratch_folder())
        self._enclose(progress)
        return scratch

    def _enclose(self, progress: Progress) -> None:
        self._enclosure = enclose()
        if self._enclosure.name:
            progress(f"enclosed in network namespace {self._enclosure.name}")

    def _run_place(self, place: _Place, variant: str | None = None) -> None:
        self._run(place.name, *self._order(place, variant))

    def _run(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self._nodes[name] = Node(
            Order(
                name=name,
                command=self._enclosure.command(command),
                environment=environment,
                folder=self._folder,
                log=self._log(name),
                pidfile=self._pidfile(name),
            )
        )

    def _check(self) -> None:
        """LabError for a node that has died."""
        for place in self._places:
            self._nodes[place.name].check()

    def _error(self, name: str, what: str) -> LabError:
        """What went wrong with a node, with the tail of its log."""
        return self._nodes[name].error(what)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _pidfile(self, name: str) -> Path:
        return self._folder / f"{name}.pid"

    @abstractmethod
    def _order(self, place: _Place, variant: str | None) -> tuple[list[str], dict[str, str]]:
        """Command line and environment of a node, as configured or as a variant."""

    @abstractmethod
    def _await(self, places: list[_Place], progress: Progress) -> None:
        """Until each of them serves; LabError for one that dies, or is late."""
