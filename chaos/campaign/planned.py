"""Which runs a scenario asks for: for each dose of its sweep, so many trials, smallest dose first.

A control arm's runs stand between the others, so that a machine which changes with time changes for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model.campaign import PlannedRun
from chaos.model.faults import Sham
from chaos.model.outcomes import Outcome
from chaos.model.repetition import Trials
from chaos.model.scenario import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.model.campaign import Arm
    from chaos.model.scenario import Scenario


ARMS: tuple[Arm, ...] = ("fault", "control")
MEASURE_S = 20.0
"""Some eighty requests of four sessions that think for a second each; a starved machine serves a quarter of that."""


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
        arms = {"fault": scenario.trials.count, "control": _controls(scenario)}
        measured = _measured(scenario) if scenario.control else scenario
        for trial in range(1, max(arms.values()) + 1):
            for arm in ARMS:
                if trial > arms[arm]:
                    continue
                number = len(runs) + 1
                planned = PlannedRun(number=number, folder=f"runs/{number:03d}", dose=dose, trial=trial, arm=arm)
                alone = _alone(measured, seed=(scenario.seed + trial - 1) % 2**63)
                runs.append(Run(planned, without_fault(alone) if arm == "control" else alone))
    return tuple(runs)


def _controls(scenario: Scenario) -> int:
    return 0 if scenario.control is None else scenario.control.count or scenario.trials.count


def _alone(scenario: Scenario, seed: int) -> Scenario:
    return scenario.model_copy(update={"trials": Trials(), "sweep": None, "control": None, "seed": seed})


def _measured(scenario: Scenario) -> Scenario:
    """Both arms keep their load up for a while after they have recovered, else there is nothing to compare."""
    observe = scenario.observe
    return scenario.model_copy(update={"observe": observe.model_copy(update={"measure": observe.measure or MEASURE_S})})


def without_fault(scenario: Scenario) -> Scenario:
    """The same scenario with nothing in every fault's place; it is only good where it is healthy."""
    timeline = [_sham(step) for step in scenario.timeline]
    allow = list(dict.fromkeys([Outcome.HEALTHY, *scenario.expect.allow]))
    return scenario.model_copy(
        update={"timeline": timeline, "expect": scenario.expect.model_copy(update={"allow": allow})}
    )


def _sham(step: Step) -> Step:
    """The step's trigger with nothing behind it. Sessions that all were to be killed leave; a few that were stay."""
    kill = step.kill
    group = kill.group if kill is not None and kill.sessions == "all" else None
    return Step(id=step.id, sham=Sham(group=group), at=step.at, when=step.when, after=step.after, give_up=step.give_up)
