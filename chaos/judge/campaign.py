"""From the verdicts of several runs to one: which trials count, how often it broke, at which dose, after how much.

Pure: the same record and the same verdicts give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from chaos.judge.speed import compare
from chaos.judge.stats import no_more_often, rate, rate_words, survival
from chaos.judge.units import count
from chaos.judge.verdict import JUDGE_VERSION
from chaos.model.campaign import FORMAT, Campaign, Dose, Trial
from chaos.model.outcomes import Answer, Cleanup, ExitCode, Outcome, RunStatus, worst_exit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chaos.model.campaign import Begun, Ended, Failed, Latency, PlannedRun, Speed, Survival
    from chaos.model.verdict import Verdict

ALPHA = 0.05
"""How likely a difference between the arms may be by chance before it is put down to the fault."""
_STATUS = {
    ExitCode.REFUSED: RunStatus.REFUSED,
    ExitCode.USAGE: RunStatus.REFUSED,
    ExitCode.UNFIT: RunStatus.UNFIT,
    ExitCode.INTERRUPTED: RunStatus.ABORTED,
}


def broke(verdict: Verdict) -> bool:
    """Whether the deployment no longer served, however the verdict calls it."""
    return verdict.wedge is not None or verdict.outcome in (Outcome.WEDGED, Outcome.CRASHED)


def is_the_last(begun: Begun, run: PlannedRun, verdict: Verdict) -> bool:
    """Whether a campaign goes no further after this run: it is on until the first trial that counts and broke."""
    return bool(begun.until) and run.arm == "fault" and broke(verdict) and not _why_not(verdict)


def judge_campaign(
    begun: Begun,
    verdicts: Mapping[int, Verdict],
    failed: Sequence[Failed] = (),
    ended: Ended | None = None,
    latencies: Mapping[int, Latency] | None = None,
) -> Campaign:
    """The campaign's verdict from its record and, by the numbers of its runs, their verdicts and latencies."""
    without = {one.number: one for one in failed}
    made_up_to = _made_up_to(begun, verdicts, without, ended)
    trials = []
    for run in begun.runs:
        if run.number in verdicts:
            trials.append(_trial(run, verdicts[run.number]))
        elif run.number in without:
            trials.append(_no_trial(run, without[run.number].error, without[run.number].exit_code))
        elif run.number <= made_up_to:
            trials.append(_no_trial(run, "its record is gone", ExitCode.INCONCLUSIVE))
    stopped = _stopped(begun, trials, ended)
    names = tuple(dict.fromkeys(run.dose for run in begun.runs))
    what = _what(trials)
    doses = tuple(_dose(begun, name, [trial for trial in trials if trial.dose == name], what) for name in names)
    speeds = compare(begun, trials, latencies or {})
    degraded = any(one.answer is Answer.YES for one in speeds)
    smallest = next((dose.dose for dose in doses if dose.broke and dose.broke.hits), "")
    spared = [trial for trial in trials if not _was_no_control(trial)]
    codes = [trial.exit_code for trial in spared] + [ExitCode.INCONCLUSIVE] * (len(spared) < len(trials))
    if ended is None:
        codes.append(ExitCode.HARNESS_ERROR)
    elif ended.interrupted:
        codes.append(ExitCode.INTERRUPTED)
    outcomes = [trial.outcome or Outcome.INCONCLUSIVE for trial in spared]
    outcomes += [Outcome.INCONCLUSIVE] * (len(spared) < len(trials) or not trials)
    if degraded:
        outcomes.append(Outcome.DEGRADED)
        codes.append(ExitCode.AS_EXPECTED if Outcome.DEGRADED in begun.allow else ExitCode.VIOLATION)
    return Campaign(
        format=FORMAT,
        judge_version=JUDGE_VERSION,
        campaign_id=begun.campaign_id,
        scenario=begun.scenario,
        about=begun.about,
        target=begun.target,
        outcome=min(outcomes, key=lambda outcome: outcome.rank),
        exit_code=worst_exit(codes or [ExitCode.INCONCLUSIVE]),
        headline=_headline(doses, what, smallest, degraded=degraded),
        reasons=tuple(_reasons(doses, what, speeds, trials, stopped, len(begun.runs))),
        planned=len(begun.runs),
        stopped=stopped,
        trials=tuple(trials),
        doses=doses,
        speed=speeds,
        smallest=smallest,
        allow=begun.allow,
    )


def _trial(run: PlannedRun, verdict: Verdict) -> Trial:
    landed = [wave for wave in verdict.waves if wave.landed is Answer.YES and wave.kind != "sham"]
    aborts = [wave.server_aborts for wave in landed if wave.kind == "kill"]
    known = [number for number in aborts if number is not None]
    return Trial(
        number=run.number,
        folder=run.folder,
        dose=run.dose,
        trial=run.trial,
        arm=run.arm,
        outcome=verdict.outcome,
        status=verdict.status,
        cleanup=verdict.cleanup,
        exit_code=verdict.exit_code,
        headline=verdict.headline,
        why_not=_why_not(verdict),
        broke=broke(verdict),
        waves=len(landed),
        aborts=sum(known) if len(known) == len(aborts) else None,
        duration_s=verdict.duration_s,
    )


def _why_not(verdict: Verdict) -> str:
    """A fault that did not land tested nothing, and a run that cannot tell is no trial either way."""
    landed = next((one for one in verdict.findings if one.id == "faults-landed"), None)
    if landed is None or landed.answer in (Answer.NO, Answer.UNKNOWN):
        told = landed.evidence[0].text if landed and landed.evidence else "nothing tells"
        return f"the fault did not land: {told}"
    return "it is inconclusive" if verdict.outcome is Outcome.INCONCLUSIVE else ""


def _was_no_control(trial: Trial) -> bool:
    """Whether a control run only shows that its load went on where the fault would have ended it: that load is ours."""
    slow = trial.outcome in (Outcome.OVERLOADED, Outcome.SLOW_RECOVERY)
    return trial.arm == "control" and slow and not trial.counts


def _made_up_to(
    begun: Begun, verdicts: Mapping[int, Verdict], without: Mapping[int, Failed], ended: Ended | None
) -> int:
    """The number of the last run that must have been made: one of which nothing is left is doubt, not nothing."""
    last = max((*verdicts, *without), default=0)
    if (
        ended is None
        or ended.reason
        or any(is_the_last(begun, run, verdicts[run.number]) for run in begun.runs if run.number in verdicts)
    ):
        return last
    return len(begun.runs)


def _no_trial(run: PlannedRun, why: str, code: ExitCode) -> Trial:
    return Trial(
        number=run.number,
        folder=run.folder,
        dose=run.dose,
        trial=run.trial,
        arm=run.arm,
        outcome=None,
        status=_STATUS.get(code, RunStatus.HARNESS_ERROR),
        cleanup=Cleanup.UNKNOWN,
        exit_code=code,
        headline=why,
        why_not="there is no record of it",
        broke=False,
        waves=0,
        aborts=None,
        duration_s=0.0,
    )


def _stopped(begun: Begun, trials: Sequence[Trial], ended: Ended | None) -> str:
    left = len(begun.runs) - len(trials)
    if ended is None:
        return f"the campaign was cut off, with {count(left, 'run')} left"
    if left and begun.until and not ended.reason:
        return "the first that broke was to be the last"
    return ended.reason


def _dose(begun: Begun, name: str, both_arms: Sequence[Trial], what: str) -> Dose:
    trials = [trial for trial in both_arms if trial.arm == "fault"]
    controls = [trial for trial in both_arms if trial.arm == "control" and trial.counts]
    counted = [trial for trial in trials if trial.counts]
    outcomes = Counter(trial.outcome for trial in counted if trial.outcome)
    broken = [trial for trial in counted if trial.broke]
    serving = [trial for trial in counted if not trial.broke]
    violations = [trial for trial in counted if trial.outcome and trial.outcome.violation]
    broke_rate = rate(len(broken), len(counted), until_first=bool(begun.until) and len(broken) == 1)
    control = rate(sum(trial.broke for trial in controls), len(controls))
    waves = survival("waves", [trial.waves for trial in broken], [trial.waves for trial in serving])
    aborts = None
    if all(trial.aborts is not None for trial in counted):
        aborts = survival("aborts", [trial.aborts or 0 for trial in broken], [trial.aborts or 0 for trial in serving])
    return Dose(
        dose=name,
        planned=sum(run.dose == name and run.arm == "fault" for run in begun.runs),
        made=len(trials),
        counted=len(counted),
        outcomes={outcome.value: outcomes[outcome] for outcome in Outcome if outcomes[outcome]},
        broke=broke_rate,
        violations=rate(len(violations), len(counted)),
        waves=waves,
        aborts=aborts,
        told=rate_words(broke_rate, what) if broke_rate else "no trial counts",
        control=control,
        p=no_more_often(broke_rate, control) if broke_rate and broke_rate.hits and control else None,
        survived=_survived(waves, aborts),
    )


# ---------------------------------------------------------------------------------------------- in words


def _what(trials: Sequence[Trial]) -> str:
    """What breaking is called here."""
    crashed = any(trial.broke and trial.outcome is not Outcome.WEDGED for trial in trials)
    return "wedged or crashed" if crashed else "wedged"


def _headline(doses: Sequence[Dose], what: str, smallest: str, *, degraded: bool) -> str:
    slower = "; slower than the control" if degraded else ""
    return _rates(doses, what, smallest) + slower


def _rates(doses: Sequence[Dose], what: str, smallest: str) -> str:
    counted = [dose for dose in doses if dose.counted]
    if not counted:
        return "No trial counts: nothing can be said"
    if len(doses) == 1:
        return _whole(doses[0])
    if not smallest:
        return f"No dose {what}, up to {counted[-1].dose}: {counted[-1].told}"
    return f"The smallest dose that {what}: {smallest}: {next(d.told for d in doses if d.dose == smallest)}"


def _whole(dose: Dose) -> str:
    control = dose.control
    anyway = f"; without the fault, too: {control.hits} of {control.of}" if control and control.hits else ""
    return dose.told + anyway + (f"; {dose.survived}" if dose.survived else "")


def _without_the_fault(dose: Dose, what: str) -> str:
    """What the control says of who is to blame; empty where it says nothing."""
    if dose.p is None:
        return ""
    chance = f"p = {dose.p:.2g}"
    verdict = (
        f"the fault breaks it ({chance})" if dose.p < ALPHA else f"that the fault adds to it may be chance ({chance})"
    )
    name = f" ({dose.dose})" if dose.dose else ""
    return f"the same load without the fault{name}: {rate_words(dose.control, what)}; {verdict}"


def _survived(waves: Survival | None, aborts: Survival | None) -> str:
    """After how much trials broke, and how much the others survived."""
    if waves is None:
        return ""
    told = []
    if waves.broke_after:
        told.append(f"broke after {_hits(sum(aborts.broke_after) if aborts else None, sum(waves.broke_after))}")
    if any(waves.survived):
        told.append(f"survived {_hits(sum(aborts.survived) if aborts else None, sum(waves.survived))}")
    return ", ".join(told)


def _hits(aborts: int | None, waves: int) -> str:
    """`1240 aborts in 40 waves`."""
    return count(waves, "wave") if aborts is None else f"{count(aborts, 'abort')} in {count(waves, 'wave')}"


def _reasons(
    doses: Sequence[Dose], what: str, speeds: Sequence[Speed], trials: Sequence[Trial], stopped: str, planned: int
) -> list[str]:
    told = [f"{dose.dose}: {_whole(dose)}" for dose in doses] if len(doses) > 1 else []
    told += filter(None, (_without_the_fault(dose, what) for dose in doses))
    told += [f"{_name(trial)}: {trial.headline}" for trial in trials if trial.broke or _sick(trial)]
    told += [(f"{one.dose}: " if one.dose else "") + one.told for one in speeds]
    if any(map(_was_no_control, trials)):
        told.append(
            "the control's sessions did not end by themselves in time: give them shorter answers (`max_tokens`)"
        )
    not_counted = Counter(trial.why_not for trial in trials if not trial.counts)
    told += [f"not counted, {count(number, 'trial')}: {why}" for why, number in not_counted.most_common()]
    told += [f"{_name(trial)} broke, though it does not count" for trial in trials if trial.broke and not trial.counts]
    if stopped:
        told.append(f"{len(trials)} of {planned} runs made: {stopped}")
    return told


def _name(trial: Trial) -> str:
    more = ", ".join(filter(None, [trial.dose, "control" if trial.arm == "control" else ""]))
    return f"run {trial.number}" + (f" ({more})" if more else "")


def _sick(trial: Trial) -> bool:
    """A control run that is not well: then it is not the fault."""
    return trial.arm == "control" and trial.outcome is not None and trial.outcome.violation
