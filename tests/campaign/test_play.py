"""The loop over runs: when it stops, what it records, what it does with a run that cannot begin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from campaigns import begun, verdict

from chaos.campaign import MOST_FAILED_IN_A_ROW, Run, judged_campaign, planned_runs, play
from chaos.journal import CampaignFolder, JournalWriter, RunFolder
from chaos.model import events as ev
from chaos.model.campaign import Ended
from chaos.model.errors import LabError, Refused, UserError
from chaos.model.loading import parse_scenario, parse_variants
from chaos.model.outcomes import ExitCode, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.model.campaign import Begun
    from chaos.model.verdict import Verdict

SCENARIO = "version: 1\nname: small\nload: [{name: agents, sessions: 60}]\n"
FINE, WEDGED = verdict(), verdict(Outcome.WEDGED)


def played(folder: Path, script: list[Verdict | BaseException], campaign: Begun, *, stop_at: int = 0) -> tuple:
    """What the script's runs became: the numbers made, and the record."""
    scenario = parse_scenario(SCENARIO, "s.yaml")
    runs = tuple(Run(planned, scenario) for planned in campaign.runs)
    made: list[int] = []

    def make(run: Run) -> Verdict:
        made.append(run.planned.number)
        told = script[run.planned.number - 1]
        if isinstance(told, BaseException):
            raise told
        return told

    where = CampaignFolder.create(folder, utc="u", scenario="s", campaign_id="c")
    play(campaign, runs, where, make, lambda: "SIGINT" if stop_at and len(made) >= stop_at else "")
    return made, where.read()


def test_every_planned_run_is_made(tmp_path: Path) -> None:
    made, record = played(tmp_path, [WEDGED, FINE, FINE], begun(trials=3))
    assert ([1, 2, 3], Ended(reason="", interrupted=False)) == (made, record.ended)


def test_until_wedged_goes_no_further(tmp_path: Path) -> None:
    made, record = played(tmp_path, [FINE, WEDGED, FINE], begun(trials=3, until="wedged"))
    assert ([1, 2], Ended(reason="", interrupted=False)) == (made, record.ended)


def test_somebody_who_stops_it_gets_the_present_run_whole_and_no_other(tmp_path: Path) -> None:
    made, record = played(tmp_path, [FINE] * 5, begun(trials=5), stop_at=2)
    assert ([1, 2], Ended(reason="SIGINT", interrupted=True)) == (made, record.ended)


def test_stopping_in_the_last_run_stops_nothing(tmp_path: Path) -> None:
    _, record = played(tmp_path, [FINE] * 2, begun(trials=2), stop_at=2)
    assert Ended(reason="", interrupted=False) == record.ended


def test_a_ctrl_c_while_a_deployment_starts_leaves_no_folder_of_that_run(tmp_path: Path) -> None:
    made, record = played(tmp_path, [FINE, KeyboardInterrupt()], begun(trials=3))
    assert ([1, 2], True) == (made, record.ended.interrupted)


def test_a_run_that_cannot_begin_is_recorded_and_the_next_is_made(tmp_path: Path) -> None:
    made, record = played(tmp_path, [LabError("no port"), FINE, Refused("what now"), FINE], begun(trials=4))
    assert [1, 2, 3, 4] == made
    assert [(1, ExitCode.HARNESS_ERROR, "no port"), (3, ExitCode.REFUSED, "what now")] == [
        (one.number, one.exit_code, one.error) for one in record.failed
    ]


def test_a_mistake_of_the_users_in_the_first_run_is_theirs_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not allowed"):
        played(tmp_path, [Refused("not allowed")], begun(trials=3))


def test_runs_that_fail_in_a_row_end_it(tmp_path: Path) -> None:
    made, record = played(tmp_path, [FINE, *[LabError("no port")] * 5], begun(trials=6))
    assert list(range(1, MOST_FAILED_IN_A_ROW + 2)) == made
    assert ("3 runs in a row could not begin", False) == (record.ended.reason, record.ended.interrupted)


def test_each_trial_has_its_seed_and_asks_for_one_run() -> None:
    text = SCENARIO + "trials: {count: 2}\nseed: 5\nsweep: {load.sessions: [10, 20]}\n"
    runs = planned_runs(parse_variants(text, "s.yaml"))
    assert [(1, "load.sessions=10", 5, 10), (2, "load.sessions=10", 6, 10), (3, "load.sessions=20", 5, 20)] == [
        (run.planned.number, run.planned.dose, run.scenario.seed, run.scenario.load[0].sessions) for run in runs[:3]
    ]
    assert {(1, None)} == {(run.scenario.trials.count, run.scenario.sweep) for run in runs}
    assert 4 == len({run.planned.folder for run in runs})


FAULTY = """\
version: 1
name: small
load: [{name: agents, sessions: 60}]
timeline:
  - {id: wave, kill: {group: agents}, when: {waiting: ">= 20"}, aim: {waiting: ">= 20", server_aborts: ">= 1"}}
  - {id: some, kill: {group: agents, sessions: 5, how: rst}, after: wave}
  - {id: freeze, signal: {where: {role: decode}, send: STOP}, for: 20s, at: 5s}
trials: {count: 4}
control: {count: 5}
expect: {allow: [wedged]}
"""


def test_a_control_arm_has_the_same_load_and_triggers_and_breaks_nothing() -> None:
    runs = planned_runs(parse_variants(FAULTY, "s.yaml"))
    arms = [run.planned.arm for run in runs]
    assert (["fault", "control"] * 4 + ["control"], 9) == (arms, len({run.planned.folder for run in runs}))
    fault, control = runs[0].scenario, runs[1].scenario
    assert (fault.load, fault.seed, fault.observe) == (control.load, control.seed, control.observe)
    assert fault.observe.measure > 0
    assert {"sham"} == {step.action.kind for step in control.timeline}
    wave, some, freeze = control.timeline
    assert ("agents", {"waiting": ">= 20"}, {}) == (wave.sham.group, wave.when, wave.aim)
    assert (None, "wave") == (some.sham.group, some.after)  # those that are not killed would stay, too
    assert (None, 5.0, None) == (freeze.sham.group, freeze.at, freeze.lasts)
    assert ([Outcome.HEALTHY, Outcome.WEDGED], [Outcome.WEDGED]) == (control.expect.allow, fault.expect.allow)
    for run in runs[:2]:  # a run folder's scenario can be run again
        text = json.dumps(run.scenario.model_dump(mode="json", by_alias=True, exclude_none=True))
        assert run.scenario == parse_scenario(text, "s.json")


# ---------------------------------------------------------------------------------------------- the folder


def journal(folder: RunFolder) -> None:
    """A run that was cut off at once."""
    writer = JournalWriter(folder.journal)
    plan = ev.Plan(scenario="s")
    event = ev.RunStarted(t_ns=1, format=ev.FORMAT, run_id="r", tool_version="0", utc="x", target="file", plan=plan)
    writer.write(writer.stamp(event, 0))
    writer.close()


def test_a_campaign_that_was_killed_is_judged_from_what_is_there(tmp_path: Path) -> None:
    folder = CampaignFolder.create(tmp_path, utc="u", scenario="s", campaign_id="c")
    campaign = begun(trials=3)
    folder.note(campaign)
    journal(RunFolder.make(folder.run(campaign.runs[0]).root))
    RunFolder.make(folder.run(campaign.runs[1]).root)  # killed before its journal began
    with (folder.root / "campaign.jsonl").open("ab") as record:
        record.write(b'{"type":"run.fai')
    told = judged_campaign(folder)
    assert ([1], ExitCode.CLEANUP_INCOMPLETE) == ([trial.number for trial in told.trials], told.exit_code)
    assert "the campaign was cut off, with 2 runs left" == told.stopped


def test_a_folder_without_any_run_is_discarded_and_one_with_a_journal_is_not(tmp_path: Path) -> None:
    folder = CampaignFolder.create(tmp_path, utc="u", scenario="s", campaign_id="c")
    run = RunFolder.make(folder.run(begun().runs[0]).root)
    journal(run)
    folder.discard()
    assert folder.root.is_dir()
    run.journal.unlink()
    folder.discard()
    assert not folder.root.exists()


def test_what_was_made_above_a_folder_goes_with_it_unless_others_are_at_work_there(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path / "deep" / "reports", utc="u", scenario="s", run_id="1")
    second = RunFolder.create(tmp_path / "deep" / "reports", utc="u", scenario="s", run_id="2")
    first.discard()
    assert second.root.is_dir()
    third = RunFolder.create(tmp_path / "other", utc="u", scenario="s", run_id="3")
    third.discard()
    assert ["deep"] == [path.name for path in tmp_path.iterdir()]


def test_a_run_that_could_not_begin_leaves_its_folder_only_where_there_is_something_to_read(tmp_path: Path) -> None:
    empty, told = (RunFolder.create(tmp_path / "r", utc="u", scenario="s", run_id=name) for name in ("1", "2"))
    (told.logs / "prefill-0.log").write_text("no GPU\n")
    empty.discard_empty()
    told.discard_empty()
    assert [told.root] == list((tmp_path / "r").iterdir())


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    assert CampaignFolder.find(tmp_path) is None
    (tmp_path / "campaign.jsonl").write_text("{}\n")
    folder = CampaignFolder.find(tmp_path / "campaign.jsonl")
    assert folder is not None
    with pytest.raises(UserError, match="not the record of a campaign"):
        folder.read()
