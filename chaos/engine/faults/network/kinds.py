"""What each kind of network fault orders from a host, and what must be measured for it to be there, and to be gone.

Measured is what passes between the two hosts, before, while and after, and what the rules themselves counted. A probe
that found nothing passing before can show nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.engine.faults.network.line import Line
    from chaos.model.target import Server

Look = TypeVar("Look")


@dataclass(frozen=True, slots=True)
class Told:
    """What a measurement shows of one line."""

    ok: bool
    text: str  # what was measured, for people
    why: str = ""  # why it is not as it should be


@dataclass(frozen=True, slots=True)
class Counted:
    """What the rules on a host counted."""

    by: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, what: str) -> int:
        return self.by.get(what, 0)

    @property
    def told(self) -> str:
        """For people."""
        return ", ".join(f"{what} {count}" for what, count in sorted(self.by.items()))


class Kind(ABC, Generic[Look]):
    """One kind."""

    one_by_one = False
    """Whether lines must be measured one after the other, since they share what is measured."""

    @abstractmethod
    def order(self, near: tuple[Server, ...]) -> dict[str, Any]:
        """What is asked of the host (`net.plan`), beyond both ends."""

    @abstractmethod
    async def look(self, line: Line, *, there: bool) -> Look:
        """Measure what passes; `there`: while the fault is there. Raises HostTrouble, HostLost."""

    @abstractmethod
    def shown(self, before: Look, now: Look, counted: Counted) -> Told:
        """Whether the fault took effect on this line."""

    @abstractmethod
    def cleared(self, before: Look, now: Look) -> Told:
        """Whether all passes again that passed before."""
