"""The words that every rendering of a campaign shares."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from chaos.model.outcomes import ExitCode
from chaos.render import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.model.campaign import Campaign, Dose, PlannedRun, SpeedMeasure, Trial
    from chaos.model.verdict import Verdict


def named(run: PlannedRun | Trial) -> str:
    """What tells a run from the others beside its number; empty where nothing does."""
    return ", ".join(filter(None, [run.dose, "control" if run.arm == "control" else ""]))


def run_line(planned: PlannedRun, of: int, verdict: Verdict) -> str:
    """One run that has ended, on one line."""
    name = f" ({named(planned)})" if named(planned) else ""
    word = words.outcome_look(verdict.outcome).word
    return words.one_line(f"run {planned.number} of {of}{name}: {word}: {words.headline(verdict)}", 300)


def look(campaign: Campaign) -> words.Look:
    """How the worst outcome looks, unless it is what was asked for."""
    worst = words.outcome_look(campaign.outcome)
    expected = campaign.exit_code is ExitCode.AS_EXPECTED
    return words.Look(worst.word, words.GLYPHS["good"], "good") if expected else worst


def trial_look(trial: Trial) -> words.Look:
    """How a run's outcome looks; one that could not begin has none."""
    if trial.outcome is None:
        return words.Look("NOT BEGUN", words.GLYPHS["dim"], "dim")
    return words.outcome_look(trial.outcome)


def dose_name(dose: Dose) -> str:
    """What the trials of a dose have in common."""
    return dose.dose or "all trials"


def outcomes_words(outcomes: Mapping[str, int]) -> str:
    """`wedged 3, healthy 17`."""
    return ", ".join(f"{name} {number}" for name, number in outcomes.items()) or "none"


def counts_words(dose: Dose) -> str:
    """How many were planned, made, and count."""
    made = "" if dose.made == dose.planned else f" of {dose.planned} planned"
    return f"{words.count(dose.made, 'run')}{made}, {dose.counted} counted"


def hits_words(trial: Trial) -> str:
    """What a trial was hit by."""
    aborts = "" if trial.aborts is None else f", {words.count(trial.aborts, 'abort')}"
    return f"{words.count(trial.waves, 'wave')}{aborts}"


def measure_words(measure: SpeedMeasure) -> tuple[str, ...]:
    """Name, both medians, ratio, how often the one is above the other, p, and the answer."""
    return (
        measure.name,
        f"{statistics.median(measure.fault_ms):.0f} ms ({words.count(len(measure.fault_ms), 'run')})",
        f"{statistics.median(measure.control_ms):.0f} ms ({words.count(len(measure.control_ms), 'run')})",
        f"{measure.ratio:.2f}",
        f"{measure.above:.0%}".replace("%", " %"),
        f"{measure.p:.2g}",
        words.answer_word(measure.slower),
    )


MEASURE_HEADS = ["measure", "after the fault", "control", "ratio", "runs above", "p", "slower"]


def axes_words(campaign: Campaign) -> str:
    """How many runs, the exit code, and the whole time."""
    code = ExitCode(campaign.exit_code)
    took_s = sum(trial.duration_s for trial in campaign.trials)
    return words.DOT.join(
        [
            f"{len(campaign.trials)} of {words.count(campaign.planned, 'run')} made",
            f"exit {int(code)} ({words.EXIT_MEANINGS[code]})",
            words.span(took_s),
        ]
    )


def headline(campaign: Campaign) -> str:
    """What the campaign says, in one sentence."""
    text = words.one_line(campaign.headline)
    return text[:1].upper() + text[1:]
