"""Statistics over trials, by scipy: exact intervals, survival with censoring, a rank test. Nothing is home-made.

scipy takes a second to import and most commands never need it, so each function imports what it uses.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Literal

from chaos.model.campaign import Rate, SpeedMeasure, Survival
from chaos.model.outcomes import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.model.campaign import Sides

LEVEL = 0.95
_ALTERNATIVES: dict[Sides, str] = {"upper": "less", "lower": "greater", "both": "two-sided"}


def rate(hits: int, of: int, *, level: float = LEVEL, until_first: bool = False) -> Rate | None:
    """The exact (Clopper-Pearson) interval of a rate; None when nothing was tried.

    Where none or all were hit only one end can be a bound, and it gets the whole error: 0 of 20 is below 14 % at 95 %.
    `until_first`: trying went on until the first hit and stopped there, so the number of tries is what was random
    (inverse sampling); the interval is the exact one for that.
    """
    if not 0 <= hits <= of:
        raise ValueError(f"{hits} of {of}")
    if until_first and hits > 1:
        raise ValueError(f"{hits} hits, and the first should have ended it")
    if of == 0:
        return None
    from scipy.stats import beta, binomtest  # noqa: PLC0415 - see above

    if until_first and hits == 1 and of > 1:
        tail = (1 - level) / 2
        low, high = float(beta.ppf(tail, 1, of)), float(beta.ppf(1 - tail, 1, of - 1))
        return Rate(hits=hits, of=of, low=low, high=high, sides="both", level=level)
    sides: Sides = "upper" if hits == 0 else "lower" if hits == of else "both"
    interval = binomtest(hits, of, alternative=_ALTERNATIVES[sides]).proportion_ci(level, method="exact")
    return Rate(hits=hits, of=of, low=float(interval.low), high=float(interval.high), sides=sides, level=level)


def rate_words(found: Rate | None, what: str = "") -> str:
    """`0 of 20 wedged: below 14 % at 95 %`."""
    if found is None:
        return f"none of none {what}".strip()
    told = f"{found.hits} of {found.of} {what}".strip()
    level = f"at {found.level:.0%}".replace("%", " %")
    match found.sides:
        case "upper":
            return f"{told}: below {_percent(found.high)} {level}"
        case "lower":
            return f"{told}: above {_percent(found.low)} {level}"
        case _:
            return f"{told}: {_percent(found.hits / found.of)}, {_percent(found.low)} to {_percent(found.high)} {level}"


def _percent(share: float) -> str:
    """A share for people: two digits that mean something."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.3g} %"


def survival(unit: Literal["waves", "aborts"], broke_after: Sequence[int], survived: Sequence[int]) -> Survival | None:
    """Kaplan-Meier's estimate of how many hits it takes; None when no trial was hit at all."""
    if not any((*broke_after, *survived)):
        return None
    return Survival(
        unit=unit,
        broke_after=tuple(sorted(broke_after)),
        survived=tuple(sorted(survived)),
        median=_median_survival(broke_after, survived) if broke_after else None,
    )


def _median_survival(broke_after: Sequence[int], survived: Sequence[int]) -> float | None:
    from scipy.stats import CensoredData, ecdf  # noqa: PLC0415 - see above

    serving = ecdf(CensoredData(uncensored=list(broke_after), right=list(survived))).sf
    pairs = zip(serving.quantiles, serving.probabilities, strict=True)
    return next((float(hits) for hits, share in pairs if share <= 0.5), None)


def slower(
    name: str, fault_ms: Sequence[float], control_ms: Sequence[float], *, by: float, alpha: float
) -> SpeedMeasure:
    """Whether runs with the fault are slower than those of the control: Mann-Whitney's rank test over *runs*.

    Requests of one run share its machine and its moment, so they are no independent evidence: a run is one number.
    Yes needs both `p < alpha` and medians that differ by the factor `1 + by`. No needs enough runs that yes could have
    been found: with fewer the answer is unknown.
    """
    if not fault_ms or not control_ms:
        raise ValueError(f"{name}: no run to compare")
    from scipy.stats import mannwhitneyu  # noqa: PLC0415 - see above

    test = mannwhitneyu(fault_ms, control_ms, alternative="greater", method="auto")
    pairs = len(fault_ms) * len(control_ms)
    ratio = statistics.median(fault_ms) / statistics.median(control_ms)
    p, large = float(test.pvalue), ratio >= 1 + by
    if p < alpha and large:
        answer = Answer.YES
    elif large or not can_tell(len(fault_ms), len(control_ms), alpha):
        answer = Answer.UNKNOWN
    else:
        answer = Answer.NO
    return SpeedMeasure(
        name=name,
        fault_ms=tuple(fault_ms),
        control_ms=tuple(control_ms),
        ratio=ratio,
        above=float(test.statistic) / pairs,
        p=p,
        slower=answer,
    )


def no_more_often(found: Rate, control: Rate) -> float:
    """How likely such a difference, or a larger one, is if both arms break at one rate: Fisher's exact test."""
    from scipy.stats import fisher_exact  # noqa: PLC0415 - see above

    table = [[one.hits, one.of - one.hits] for one in (found, control)]
    return float(fisher_exact(table, alternative="greater").pvalue)


def can_tell(fault_runs: int, control_runs: int, alpha: float) -> bool:
    """Whether so many runs could show a difference at all: if every one with the fault were slower than every other."""
    from scipy.special import comb  # noqa: PLC0415 - see above

    return bool(1 / comb(fault_runs + control_runs, fault_runs, exact=True) < alpha)
