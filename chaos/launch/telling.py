"""What people are told on stderr, beside what a run shows: progress, mistakes with their hint, defects."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from chaos.model.errors import InvalidFile, Unfit, UserError

if TYPE_CHECKING:
    from chaos.model.errors import PdchaosError


def note(line: str) -> None:
    """Progress before the live view is there."""
    print(line, file=sys.stderr)  # noqa: T201


def tell(error: PdchaosError) -> None:
    """Print an error for people: what is wrong, and what to do about it."""
    if isinstance(error, InvalidFile):
        count = len(error.problems)
        _print(error.message)
        complain(f"{count} problem{'s' if count > 1 else ''}; nothing was started")
        return
    objections = error.message.split("; ") if isinstance(error, Unfit) else []
    if len(objections) > 1:
        complain(f"{len(objections)} objections to the target:")
        for objection in objections:
            _print(f"  - {objection}")
    else:
        complain(error.message if isinstance(error, UserError) else f"harness error: {error.message}")
    if error.hint:
        _print(f"  hint: {error.hint}")


def complain(message: str) -> None:
    """One line on stderr under our name."""
    _print(f"pdchaos: {message}")


def _print(line: str) -> None:
    """On stderr, without any secret that was looked up: errors quote what servers say."""
    from chaos.engine.secrets import concealed  # noqa: PLC0415 - after the cheap imports

    print(concealed(line), file=sys.stderr)  # noqa: T201
