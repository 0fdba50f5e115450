"""What a target allows to be done to it is checked before anything is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.errors import Refused

if TYPE_CHECKING:
    from chaos.model.scenario import Scenario
    from chaos.model.target import Target


def demand(scenario: Scenario, target: Target) -> None:
    """Raise `Refused` when a step needs what the target file does not allow."""
    if target.environment == "production":
        raise Refused(
            f"{target.name} is a production deployment", hint="this version of pdchaos runs against staging only"
        )
    needed = sorted({"kill" for step in scenario.timeline} - set(target.allow))
    if needed:
        raise Refused(
            f"{target.name} does not allow: {', '.join(needed)}",
            hint=f"add it to the target file: allow: [{', '.join([*target.allow, *needed])}]",
        )
