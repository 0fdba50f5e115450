"""Over several runs: which count, how often it broke, at which dose, after how much, and with which exit code."""

from __future__ import annotations

import msgspec
import pytest
from campaigns import DONE, begun, verdict
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.judge import is_the_last, judge_campaign
from chaos.model.campaign import Campaign, Ended, Failed
from chaos.model.outcomes import Answer, Cleanup, ExitCode, Outcome, RunStatus

WEDGED = verdict(Outcome.WEDGED)
FINE = verdict()
MISSED = verdict(Outcome.INCONCLUSIVE, landed=Answer.NO)


def test_twenty_survivors_give_a_bound_and_their_hits_are_censored() -> None:
    told = judge_campaign(begun(trials=20), dict.fromkeys(range(1, 21), verdict(aborts=(30, 32))), (), DONE)
    assert "0 of 20 wedged: below 14 % at 95 %; survived 1240 aborts in 40 waves" == told.headline
    assert (Outcome.HEALTHY, ExitCode.AS_EXPECTED, "") == (told.outcome, told.exit_code, told.stopped)
    (dose,) = told.doses
    assert ((), (62,) * 20) == (dose.aborts.broke_after, dose.aborts.survived)


def test_only_trials_that_landed_and_came_to_an_outcome_count() -> None:
    unsure = verdict(Outcome.INCONCLUSIVE)
    told = judge_campaign(begun(trials=5), {1: FINE, 2: MISSED, 3: unsure, 4: WEDGED, 5: FINE}, (), DONE)
    assert [True, False, False, True, True] == [trial.counts for trial in told.trials]
    assert {"wedged": 1, "healthy": 2} == told.doses[0].outcomes
    assert told.headline.startswith("1 of 3 wedged: 33 %")
    assert any("not counted, 1 trial: the fault did not land: wave of cycle 1" in reason for reason in told.reasons)
    assert any("not counted, 1 trial: it is inconclusive" in reason for reason in told.reasons)


def test_a_scenario_without_a_fault_has_nothing_to_land() -> None:
    told = judge_campaign(
        begun(trials=2), dict.fromkeys((1, 2), verdict(landed=Answer.NOT_APPLICABLE, aborts=())), (), DONE
    )
    assert "0 of 2 wedged: below 78 % at 95 %" == told.headline


def test_a_wedge_that_the_fault_did_not_make_is_told_but_is_no_trial_of_the_fault() -> None:
    early = verdict(Outcome.WEDGED, landed=Answer.NO)
    told = judge_campaign(begun(trials=2), {1: early, 2: FINE}, (), DONE)
    assert "0 of 1 wedged" in told.headline
    assert ExitCode.VIOLATION == told.exit_code
    assert "run 1 broke, though it does not count" in told.reasons
    assert not is_the_last(begun(trials=2, until="wedged"), begun().runs[0], early)


def test_until_wedged_ends_with_the_first_and_its_interval_is_that_of_the_number_of_tries() -> None:
    campaign = begun(trials=10, until="wedged")
    assert [False, True] == [is_the_last(campaign, campaign.runs[0], one) for one in (FINE, WEDGED)]
    assert not is_the_last(begun(trials=10), campaign.runs[0], WEDGED)
    told = judge_campaign(campaign, {1: FINE, 2: FINE, 3: WEDGED}, (), DONE)
    fixed = judge_campaign(begun(trials=3), {1: FINE, 2: FINE, 3: WEDGED}, (), DONE)
    assert told.doses[0].broke.high < fixed.doses[0].broke.high
    assert "broke after 30 aborts in 1 wave, survived 60 aborts in 2 waves" in told.headline
    assert "3 of 10 runs made: the first that broke was to be the last" in told.reasons


def test_a_control_that_broke_is_not_the_wedge_that_was_looked_for() -> None:
    campaign = begun(trials=2, until="wedged")
    control = msgspec.structs.replace(campaign.runs[0], arm="control")
    assert (False, True) == (is_the_last(campaign, control, WEDGED), is_the_last(campaign, campaign.runs[0], WEDGED))


def both_arms(fault: int, control: int, *, of: int = 6) -> Campaign:
    """So many of the runs of each arm broke."""
    campaign = begun(trials=2 * of)
    runs = tuple(
        msgspec.structs.replace(run, arm="control" if run.number > of else "fault", trial=(run.number - 1) % of + 1)
        for run in campaign.runs
    )
    broken = {*range(1, fault + 1), *range(of + 1, of + control + 1)}
    verdicts = {run.number: WEDGED if run.number in broken else FINE for run in runs}
    return judge_campaign(msgspec.structs.replace(campaign, runs=runs), verdicts, (), DONE)


@pytest.mark.parametrize(
    ("fault", "control", "said"),
    [
        pytest.param(6, 0, "0 of 6 wedged: below 39 % at 95 %; the fault breaks it (p = 0.0011)", id="its-doing"),
        pytest.param(
            2, 0, "0 of 6 wedged: below 39 % at 95 %; that the fault adds to it may be chance (p = 0.23)", id="few"
        ),
        pytest.param(
            3,
            3,
            "3 of 6 wedged: 50 %, 12 % to 88 % at 95 %; that the fault adds to it may be chance (p = 0.72)",
            id="anyway",
        ),
    ],
)
def test_what_the_control_does_tells_whether_the_fault_is_to_blame(fault, control, said) -> None:
    """Trap 36: some break now and then anyway."""
    told = both_arms(fault, control)
    assert f"the same load without the fault: {said}" in told.reasons
    anyway = f"; without the fault, too: {control} of 6"
    assert (anyway in told.headline) == (control > 0)
    assert told.headline.startswith(f"{fault} of 6 wedged")
    assert 6 == told.doses[0].made


@pytest.mark.parametrize(
    ("outcome", "landed", "code"),
    [
        (Outcome.OVERLOADED, Answer.NO, ExitCode.INCONCLUSIVE),
        (Outcome.OVERLOADED, Answer.NOT_APPLICABLE, ExitCode.VIOLATION),
        (Outcome.WEDGED, Answer.NO, ExitCode.VIOLATION),
    ],
)
def test_a_control_whose_own_load_would_not_end_says_nothing_of_the_target(outcome, landed, code) -> None:
    campaign = begun(trials=2)
    runs = (campaign.runs[0], msgspec.structs.replace(campaign.runs[1], arm="control"))
    control = verdict(outcome, landed=landed)
    told = judge_campaign(msgspec.structs.replace(campaign, runs=runs), {1: FINE, 2: control}, (), DONE)
    assert (code, code is ExitCode.INCONCLUSIVE) == (told.exit_code, told.outcome is Outcome.INCONCLUSIVE)
    assert any("give them shorter answers" in reason for reason in told.reasons) == (code is ExitCode.INCONCLUSIVE)


def test_where_nothing_broke_or_no_control_was_played_nobody_is_to_blame() -> None:
    reasons = (*both_arms(0, 0).reasons, *judge_campaign(begun(), {1: WEDGED}, (), DONE).reasons)
    assert not any("without the fault" in reason for reason in reasons)


def test_the_smallest_dose_that_broke_is_named() -> None:
    runs = {1: FINE, 2: FINE, 3: FINE, 4: WEDGED, 5: WEDGED, 6: verdict(Outcome.CRASHED)}
    told = judge_campaign(begun("n=10", "n=20", "n=40", trials=2), runs, (), DONE)
    assert "n=20" == told.smallest
    assert told.headline.startswith("The smallest dose that wedged or crashed: n=20: 1 of 2")
    assert [0, 1, 2] == [dose.broke.hits for dose in told.doses]
    none = judge_campaign(begun("n=10", "n=20"), {1: FINE, 2: FINE}, (), DONE)
    assert ("", "No dose wedged, up to n=20: 0 of 1 wedged: below 95 % at 95 %") == (none.smallest, none.headline)


def test_aborts_that_nobody_could_count_are_not_taken_for_none() -> None:
    told = judge_campaign(begun(trials=2), {1: FINE, 2: verdict(aborts=(None,))}, (), DONE)
    assert told.doses[0].aborts is None
    assert told.headline.endswith("survived 2 waves")


def test_a_campaign_of_which_nothing_counts_is_never_green() -> None:
    for runs in ({}, {1: MISSED}):
        told = judge_campaign(begun(), runs, (), DONE)
        assert (Outcome.INCONCLUSIVE, ExitCode.INCONCLUSIVE) == (told.outcome, told.exit_code)
        assert "No trial counts: nothing can be said" == told.headline


@pytest.mark.parametrize(
    ("verdicts", "failed", "ended", "code"),
    [
        ({1: FINE, 2: FINE}, [], DONE, 0),
        ({1: FINE, 2: MISSED}, [], DONE, 3),
        ({1: WEDGED, 2: MISSED}, [], DONE, 1),
        ({1: WEDGED, 2: verdict(cleanup=Cleanup.DIRTY)}, [], DONE, 1),
        ({1: FINE, 2: verdict(cleanup=Cleanup.DIRTY)}, [], DONE, 8),
        ({1: verdict(Outcome.WEDGED, cleanup=Cleanup.DIRTY), 2: WEDGED}, [], DONE, 9),
        ({1: FINE}, [Failed(number=2, exit_code=ExitCode.HARNESS_ERROR, error="no lab")], DONE, 4),
        ({1: FINE}, [], Ended(reason="SIGINT", interrupted=True), 130),
        ({1: WEDGED}, [], Ended(reason="SIGINT", interrupted=True), 1),
        ({1: FINE}, [], None, 4),
        ({1: verdict(Outcome.INCONCLUSIVE, status=RunStatus.UNFIT), 2: FINE}, [], DONE, 6),
    ],
)
def test_the_exit_code_is_the_worst_of_all_runs_by_the_order_of_several(verdicts, failed, ended, code) -> None:
    assert code == int(judge_campaign(begun(trials=2), verdicts, failed, ended).exit_code)


def test_a_run_of_which_nothing_is_left_is_doubt_unless_the_campaign_stopped_before_it() -> None:
    gone = judge_campaign(begun(trials=3), {1: FINE, 3: FINE}, (), Ended(reason="SIGINT", interrupted=True))
    assert [(2, "its record is gone")] == [(trial.number, trial.headline) for trial in gone.trials if not trial.counts]
    last = judge_campaign(begun(trials=2), {1: FINE}, (), DONE)
    assert (Outcome.INCONCLUSIVE, ExitCode.INCONCLUSIVE, 2) == (last.outcome, last.exit_code, len(last.trials))
    sought = judge_campaign(begun(trials=3, until="wedged"), {1: FINE}, (), DONE)
    assert 3 == len(sought.trials)  # nothing broke, so it must have gone on
    found = judge_campaign(begun(trials=3, until="wedged"), {1: WEDGED}, (), DONE)
    assert 1 == len(found.trials)


def test_a_run_that_could_not_begin_is_shown_with_its_reason() -> None:
    failed = [Failed(number=2, exit_code=ExitCode.HARNESS_ERROR, error="decode-0 died while starting")]
    told = judge_campaign(begun(trials=2), {1: FINE}, failed, DONE)
    assert (None, RunStatus.HARNESS_ERROR, "decode-0 died while starting", False) == (
        told.trials[1].outcome,
        told.trials[1].status,
        told.trials[1].headline,
        told.trials[1].counts,
    )


RUNS = st.lists(
    st.sampled_from([FINE, WEDGED, MISSED, verdict(Outcome.CRASHED), verdict(Outcome.LEAKING), None]),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(RUNS, RUNS)
def test_no_run_more_makes_a_campaign_look_better(first: list, more: list) -> None:
    def judged(runs: list) -> object:
        told = {number: run for number, run in enumerate(runs, 1) if run is not None}
        return judge_campaign(begun(trials=len(runs)), told, (), DONE)

    before, after = judged(first), judged(first + more)
    assert after.outcome.rank <= before.outcome.rank
    assert before.exit_code == ExitCode.AS_EXPECTED or after.exit_code != ExitCode.AS_EXPECTED
    assert sum(dose.counted for dose in after.doses) >= sum(dose.counted for dose in before.doses)


@settings(max_examples=30, deadline=None)
@given(RUNS)
def test_the_same_record_gives_the_same_bytes(runs: list) -> None:
    told = {number: run for number, run in enumerate(runs, 1) if run is not None}
    one, two = (
        msgspec.json.encode(judge_campaign(begun(trials=len(runs)), order, (), DONE))
        for order in (told, dict(reversed(told.items())))
    )
    assert one == two
