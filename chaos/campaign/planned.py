"""Which runs a scenario asks for: for each dose of its sweep, so many trials, smallest dose first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model.campaign import PlannedRun
from chaos.model.repetition import Trials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.model.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Run:
    """One run, and the scenario that it plays: a whole one that asks for a single run, so that it can be repeated."""

    planned: PlannedRun
    scenario: Scenario


def planned_runs(variants: Sequence[tuple[str, Scenario]]) -> tuple[Run, ...]:
    """The runs in the order in which they are made.

    Trials differ in their seed, else they would all send the same load; trial by trial it is the same for every dose.
    """
    runs: list[Run] = []
    for dose, scenario in variants:
        for trial in range(1, scenario.trials.count + 1):
            number = len(runs) + 1
            planned = PlannedRun(number=number, folder=f"runs/{number:03d}", dose=dose, trial=trial)
            alone = scenario.model_copy(
                update={"trials": Trials(), "sweep": None, "seed": (scenario.seed + trial - 1) % 2**63}
            )
            runs.append(Run(planned, alone))
    return tuple(runs)
