"""Where in the observations file an entry stands, so that what a named file has wrong is told with a position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model.tree import members

if TYPE_CHECKING:
    from chaos.model.errors import Problem
    from chaos.model.yamlpos import Mapping


@dataclass(frozen=True, slots=True)
class Places:
    """The positioned tree of a file that was found valid."""

    tree: Mapping

    def problem(self, section: str, index: int, key: str, message: str, hint: str = "") -> Problem:
        """A problem at one value of one entry of a section."""
        entry = members(self.tree, section)[index]
        return entry.values[key].mark.problem(message, hint)
