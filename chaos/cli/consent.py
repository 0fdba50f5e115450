"""Asks at the terminal whether a production deployment may be broken."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from chaos.model.errors import Refused

if TYPE_CHECKING:
    from chaos.model.target import Target


def ask_consent(target: Target, confirmed: str | None) -> str | None:
    """What was typed in answer to our question, where one is due and was not answered by `--confirm`.

    Raises Refused where nobody can be asked.
    """
    if target.environment != "production" or confirmed is not None:
        return confirmed
    if not sys.stdin.isatty():
        raise Refused(
            f"{target.name} is a production deployment, and nobody is at a terminal to confirm that it may be broken",
            hint=f"--confirm {target.name}",
        )
    print(f"{target.name} is in PRODUCTION. Its name, to break it: ", end="", file=sys.stderr, flush=True)  # noqa: T201
    return sys.stdin.readline().strip()
