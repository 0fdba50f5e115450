"""Is a deployment slower after the fault than the control is at the same load? A run is one observation.

Yes needs a test over runs (`stats.slower`) and a difference that matters; whatever is noisy, unequal or scarce is
unknown. Several measures are looked at, so each must stand up to its share of the error (Bonferroni).
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from chaos.judge.stats import can_tell, slower
from chaos.judge.units import count
from chaos.model.campaign import Speed
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chaos.model.campaign import Begun, Latency, SpeedMeasure, Trial

ALPHA = 0.05
_WORDS = {
    Answer.YES: "slower than the control",
    Answer.NO: "not slower than the control",
    Answer.UNKNOWN: "speed unknown",
}
LOAD_SHARE = 0.1
"""Numbers of sessions that differ by more are not the same load."""


def compare(begun: Begun, trials: Sequence[Trial], latencies: Mapping[int, Latency]) -> tuple[Speed, ...]:
    """The comparison for each dose; none where no control was planned."""
    if not any(run.arm == "control" for run in begun.runs):
        return ()
    doses = dict.fromkeys(run.dose for run in begun.runs)
    return tuple(_compare(begun, dose, [t for t in trials if t.dose == dose], latencies) for dose in doses)


def _compare(begun: Begun, dose: str, trials: Sequence[Trial], latencies: Mapping[int, Latency]) -> Speed:
    arms: dict[str, list[Latency]] = {"fault": [], "control": []}
    left_out: list[str] = []
    for trial in trials:
        found = latencies.get(trial.number)
        why = _unfit(trial, found)
        if why or found is None:
            left_out.append(f"run {trial.number}: {why}")
        else:
            arms[trial.arm].append(found)
    fault, control = arms["fault"], arms["control"]
    aside = f" (left out: {count(len(left_out), 'run')}, such as {left_out[0]})" if left_out else ""
    if not fault or not control:
        return Speed(dose=dose, answer=Answer.UNKNOWN, told=f"speed unknown: no runs of both arms to compare{aside}")
    loads = [statistics.median(one.sessions for one in arm) for arm in (fault, control)]
    if abs(loads[0] - loads[1]) > LOAD_SHARE * max(loads):
        told = f"speed unknown: not the same load, {loads[0]:g} sessions against {loads[1]:g} of the control"
        return Speed(dose=dose, answer=Answer.UNKNOWN, told=told)
    names = [name for name in control[0].medians_ms if all(name in one.medians_ms for one in (*fault, *control))]
    if not names:
        told = f"speed unknown: no measure was fit in every run{aside}"
        return Speed(dose=dose, answer=Answer.UNKNOWN, told=told)
    alpha = ALPHA / len(names)
    measures = tuple(
        slower(
            name,
            [one.medians_ms[name] for one in fault],
            [one.medians_ms[name] for one in control],
            by=begun.slower_by,
            alpha=alpha,
        )
        for name in sorted(names)
    )
    return _told(dose, measures, alpha, aside)


def _unfit(trial: Trial, found: Latency | None) -> str:
    """Why a run cannot be compared; empty when it can."""
    if not trial.counts:
        return trial.why_not
    if trial.broke:
        return "it no longer serves"
    if trial.arm == "control" and trial.outcome is not Outcome.HEALTHY:
        return f"a control that is {trial.outcome}"
    return found.why if found is not None else "it measured nothing"


def _told(dose: str, measures: tuple[SpeedMeasure, ...], alpha: float, aside: str) -> Speed:
    worst = max(measures, key=lambda measure: (measure.slower is Answer.YES, measure.ratio))
    answers = {measure.slower for measure in measures}
    answer = Answer.YES if Answer.YES in answers else Answer.UNKNOWN if Answer.UNKNOWN in answers else Answer.NO
    effect = (
        f"{worst.name} {statistics.median(worst.fault_ms):.0f} ms against {statistics.median(worst.control_ms):.0f} ms "
        f"of the control (x {worst.ratio:.2f}, p = {worst.p:.2g}, {len(worst.fault_ms)} against "
        f"{count(len(worst.control_ms), 'run')})"
    )
    if answer is Answer.UNKNOWN and not can_tell(len(worst.fault_ms), len(worst.control_ms), alpha):
        effect += f"; {count(_enough(alpha), 'run')} of each arm could tell"
    return Speed(dose=dose, answer=answer, told=f"{_WORDS[answer]}: {effect}{aside}", measures=measures)


def _enough(alpha: float) -> int:
    return next(runs for runs in range(1, 100) if can_tell(runs, runs, alpha))
