"""A production deployment is broken only by whoever says so twice: a flag, and the target's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.errors import Refused

if TYPE_CHECKING:
    from chaos.model.target import Target


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
