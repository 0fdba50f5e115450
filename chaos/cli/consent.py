"""A production deployment is broken only by whoever says so twice: a flag, and the target's name."""

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


def demand_consent(target: Target, *, production: bool, confirmed: str | None) -> None:
    """Raise Refused unless a production deployment was meant by flag and by name."""
    if target.environment != "production":
        return
    if not production:
        raise Refused(
            f"{target.name} is a production deployment",
            hint="to break it all the same: --production, and its name typed when asked (or --confirm NAME)",
        )
    if confirmed is None:
        raise Refused(f"{target.name} is a production deployment, and nobody confirmed its name")
    if confirmed != target.name:
        raise Refused(f"{confirmed!r} is not the name of this production deployment; nothing was touched")
