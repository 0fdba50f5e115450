"""One precondition: where, what, how it stands, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from chaos.model.outcomes import ExitCode, worst_exit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.model.errors import UserError


class State(StrEnum):
    """How it stands."""

    OK = "ok"
    NOTE = "note"  # a run goes without it, and says what it did not examine
    REFUSED = "refused"  # a run that needs it would be refused
    PROBLEM = "problem"  # no run would begin, or it would be inconclusive
    MISTAKE = "mistake"  # what the target file says cannot be


BAD = (State.REFUSED, State.PROBLEM, State.MISTAKE)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `where` is a server, a path, or a host."""

    where: str
    what: str
    state: State
    said: str
    fix: str = ""

    @classmethod
    def ok(cls, where: str, what: str, said: str) -> Row:
        """All is well."""
        return cls(where, what, State.OK, said)

    @classmethod
    def of(cls, where: str, what: str, error: UserError) -> Row:
        """What an error of ours says."""
        state = next((state for state, code in _CODES.items() if code is error.exit_code), State.PROBLEM)
        return cls(where, what, state, error.message, error.hint)


_CODES = {State.MISTAKE: ExitCode.USAGE, State.PROBLEM: ExitCode.UNFIT, State.REFUSED: ExitCode.REFUSED}


def verdict(rows: Iterable[Row]) -> ExitCode:
    """The exit code of them all: 2 for a mistake, 6 for an unfit target, 5 for what would be refused, else 0."""
    return worst_exit([_CODES[row.state] for row in rows if row.state in _CODES])
