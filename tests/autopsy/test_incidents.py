"""The eight transcribed incidents come out as they should, whatever they are called and wherever they happened."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml
from incidents import CASES, SECTIONS, observations, write

from chaos.autopsy import import_folder
from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.model.verdict import Verdict

FOLDERS = sorted(path for path in CASES.iterdir() if path.is_dir())
NUMBERS = [path.name[:2] for path in FOLDERS]


def judged(folder: Path) -> Verdict:
    return judge(import_folder(folder).events)


def encoded(verdict: Verdict) -> str:
    return msgspec.json.encode(verdict, order="deterministic").decode()


def test_there_are_eight_cases():
    assert ["01", "02", "03", "05", "07", "10", "13", "14"] == NUMBERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_case_comes_out_as_expected(folder):
    expected = yaml.safe_load((folder / "expected.yaml").read_text())
    verdict = judged(folder)
    assert expected.pop("outcome") == verdict.outcome, verdict.headline
    if verdict.outcome is Outcome.WEDGED:
        assert verdict.wedge is not None
        assert expected == {key: getattr(verdict.wedge, key) for key in expected}
    elif verdict.outcome is Outcome.CRASHED:
        assert f"of {expected['side']}-0 are dead" in verdict.headline
        assert expected["silent"] == ("while /health stays 200" in verdict.headline)
        assert {expected["side"]} == {cause.side for cause in verdict.causes if cause.signature == "nccl-watchdog"}
    else:
        assert {} == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_conclusion_is_written_into_a_case(folder):
    text = (folder / "observations.yaml").read_text().lower()
    words = ("outcome", "side", "silent", "confirmed", "wedge", "crash", "healthy", "leak:", "verdict", "expected")
    assert [] == [word for word in words if re.search(rf"\b{word}", text)]


@pytest.mark.parametrize("number", NUMBERS)
def test_what_only_a_run_can_tell_is_said_to_be_imported(number, case):
    verdict = judged(case(number))
    by_id = {finding.id: finding for finding in verdict.findings}
    for question in ("run-completed", "we-were-fit", "last-canaries", "probes-looked"):
        assert Answer.NOT_APPLICABLE == by_id[question].answer
        assert by_id[question].evidence[0].text.startswith("imported: ")
    assert Answer.YES == by_id["record-whole"].answer


# ------------------------------------------------------------------------------------------------ what changes nothing


@pytest.mark.parametrize("number", NUMBERS)
def test_the_folders_name_changes_nothing(number, case):
    assert encoded(judged(case(number))) == encoded(judged(case(number)))


@pytest.mark.parametrize("number", NUMBERS)
def test_other_hosts_change_nothing_but_the_hosts_in_quoted_lines(number, case):
    hosts = {"10.0.0.1": "192.168.7.11", "10.0.0.2": "node-b.example", "10.0.0.7": "172.16.0.1", "10.0.0.9": "::1"}
    before, folder = judged(case(number)), case(number)
    changed = 0
    for path in folder.iterdir():
        text = path.read_text()
        for host, other in hosts.items():
            text, times = re.subn(re.escape(host), other, text)
            changed += times
        path.write_text(text)
    assert changed > 5
    told = encoded(before)
    for host, other in hosts.items():
        told = told.replace(host, other)
    assert told == encoded(judged(folder))


def shifted(text: str, by: timedelta) -> str:
    """Every stamp of a file at another hour, its own format kept."""
    forms = {
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d": "%Y-%m-%d %H:%M:%S",
        r"(?<=E)\d{3} \d\d:\d\d:\d\d": "glog",
        r'(?<=")\d\d:\d\d:\d\d(?=Z")': "%H:%M:%S",
        r"(?<=time: )\d\d:\d\d:\d\d": "%H:%M:%S",
    }

    def moved(match: re.Match[str], form: str) -> str:
        if form == "glog":
            when = datetime.strptime("2026 0" + match[0], "%Y %m%d %H:%M:%S") + by  # noqa: DTZ007
            return when.strftime("%m%d %H:%M:%S").removeprefix("0")
        return (datetime.strptime(match[0], form) + by).strftime(form)  # noqa: DTZ007

    return re.sub(
        "|".join(f"({pattern})" for pattern in forms),
        lambda match: moved(match, list(forms.values())[(match.lastindex or 1) - 1]),
        text,
    )


STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|E\d{3} \d\d:\d\d:\d\d|time: \d\d:\d\d:\d\d")


@pytest.mark.parametrize("hours", [-5, 3])
@pytest.mark.parametrize("number", NUMBERS)
def test_another_hour_changes_nothing_but_the_stamps_in_quoted_lines(number, hours, case):
    before, folder = judged(case(number)), case(number)
    for path in folder.iterdir():
        path.write_text(shifted(path.read_text(), timedelta(hours=hours)))
    assert STAMP.sub("#", encoded(before)) == STAMP.sub("#", encoded(judged(folder)))


@pytest.mark.parametrize("number", NUMBERS)
def test_an_engine_that_logs_local_time_is_corrected_by_its_offset(number, case):
    before, folder = judged(case(number)), case(number)
    for path in folder.glob("*.log"):
        path.write_text(shifted(path.read_text(), timedelta(hours=-7)))
    told = observations(folder)
    for log in told["logs"]:
        log["utc_offset"] = "-07:00"
    write(folder, told)
    assert STAMP.sub("#", encoded(before)) == STAMP.sub("#", encoded(judged(folder)))


# ------------------------------------------------------------------------------------------------ what is missing


@pytest.mark.parametrize("number", [number for number in NUMBERS if number != "02"])
def test_removing_evidence_never_makes_a_case_healthy(number, case):
    told = observations(case(number))
    without: list[dict] = [{**told, section: []} for section in SECTIONS if told.get(section)]
    without += [
        {**told, section: told[section][:i] + told[section][i + 1 :]}
        for section in SECTIONS
        for i in range(len(told.get(section, ())))
    ]
    for changed in without:
        folder = case(number)
        write(folder, {key: value for key, value in changed.items() if value != []})
        assert Outcome.HEALTHY != judged(folder).outcome


@pytest.mark.parametrize("section", ["gauges", "requests", "load", "actions"])
def test_the_healthy_case_is_not_healthy_without_its_evidence(section, case):
    folder = case("02")
    told = observations(folder)
    del told[section]
    write(folder, told)
    assert Outcome.INCONCLUSIVE == judged(folder).outcome


@pytest.mark.parametrize("number", NUMBERS)
def test_events_that_are_lost_from_the_journal_never_make_it_healthy(number, case):
    events = import_folder(case(number)).events
    for kind in {type(event) for event in events}:
        kept = [event for event in events if type(event) is not kind]
        assert Outcome.HEALTHY != judge(kept).outcome, kind


# ------------------------------------------------------------------------------------------------ what decides


def without_lines(folder: Path, name: str, *, holding: str) -> None:
    lines = (folder / name).read_text().splitlines(keepends=True)
    kept = [line for line in lines if holding not in line]
    assert len(kept) < len(lines)
    (folder / name).write_text("".join(kept))


def changed(folder: Path, **sections: object) -> Path:
    told = {**observations(folder), **sections}
    write(folder, {key: value for key, value in told.items() if value is not None})
    return folder


def test_without_fresh_requests_a_dead_control_thread_is_only_damage(case):
    assert Outcome.DAMAGED == judged(changed(case("01"), requests=None)).outcome


def test_without_the_line_of_its_death_nobody_knows_the_side(case):
    folder = case("01")
    for words in ("Exception in thread", "AssertionError: First"):
        without_lines(folder, "prefill.log", holding=words)
    verdict = judged(folder)
    assert (Outcome.WEDGED, "") == (verdict.outcome, verdict.wedge and verdict.wedge.side)


def test_a_watch_that_ends_before_the_engines_timeouts_confirms_no_wedge(case):
    folder = case("01")
    told = observations(folder)
    told["watched"]["to"] = "14:05:00Z"
    told["requests"] = told["requests"][:2]
    write(folder, told)
    verdict = judged(folder)
    assert (Outcome.WEDGED, False) == (verdict.outcome, verdict.wedge and verdict.wedge.confirmed)


def test_without_a_sign_that_it_ever_served_a_silent_deployment_is_not_accused(case):
    folder = changed(case("01"), scrapes=None, actions=[{"at": "14:02:10Z", "did": "kill-clients"}])
    without_lines(folder, "prefill.log", holding="#new-token: 8192")
    for words in ("Exception in thread", "AssertionError: First"):
        without_lines(folder, "prefill.log", holding=words)
    assert Outcome.INCONCLUSIVE == judged(folder).outcome


def test_a_fresh_request_that_fails_at_the_end_makes_a_benign_wave_no_longer_healthy(case):
    folder = case("02")
    told = observations(folder)
    told["requests"].append({"at": "15:11:45Z", "ended": "error", "status": 502})
    write(folder, told)
    assert Outcome.HEALTHY != judged(folder).outcome


def test_a_request_with_somebody_elses_text_is_worse_than_anything(case):
    folder = case("02")
    told = observations(folder)
    told["requests"][1]["content"] = "corrupted"
    write(folder, told)
    assert Outcome.CORRUPTED == judged(folder).outcome


def test_without_floors_slowness_is_all_that_is_left_of_a_leak(case):
    assert Outcome.SLOW_RECOVERY == judged(changed(case("03"), gauges=None)).outcome


def test_with_the_floor_back_after_each_wave_there_is_no_leak(case):
    folder = case("03")
    told = observations(folder)
    for gauge in told["gauges"]:
        gauge["values"] = {"decode_transfer_queue": 2}
    write(folder, told)
    assert Outcome.SLOW_RECOVERY == judged(folder).outcome


def test_a_survivor_that_serves_is_no_wedge(case):
    folder = case("05")
    told = observations(folder)
    for request in told["requests"]:
        request.update({"ended": "complete", "took": "1s", "status": 200})
    write(folder, told)
    assert Outcome.INCONCLUSIVE == judged(folder).outcome


def test_a_prefill_that_we_did_not_kill_and_that_is_dead_is_a_crash(case):
    dead = {"at": "16:40:00Z", "node": "prefill-0", "alive": False, "state": "zombie", "pid": 7}
    assert Outcome.CRASHED == judged(changed(case("05"), actions=None, processes=[dead])).outcome


def test_without_the_batch_lines_nothing_shows_that_a_slow_prefill_progresses(case):
    folder = case("07")
    without_lines(folder, "prefill.log", holding="Prefill batch")
    assert Outcome.SLOW_RECOVERY == judged(folder).outcome


def test_a_backlog_that_does_not_shrink_is_no_overload(case):
    folder = case("07")
    text = re.sub(r"#queue-req: \d+", "#queue-req: 38", (folder / "prefill.log").read_text())
    (folder / "prefill.log").write_text(re.sub(r"#(bootstrap|inflight)-req: \d+", r"#\1-req: 4", text))
    without_lines(folder, "decode.log", holding="Decode batch")
    assert Outcome.SLOW_RECOVERY == judged(folder).outcome


def test_with_its_children_alive_one_failed_request_is_no_crash(case):
    folder = case("10")
    told = observations(folder)
    for child in told["processes"][0]["children"]:
        child["alive"] = True
    write(folder, told)
    verdict = judged(folder)
    assert Outcome.DAMAGED == verdict.outcome  # the watchdog's line is still there
    for words in ("Watchdog caught", "terminate called"):
        without_lines(folder, "prefill.log", holding=words)
    assert Outcome.INCONCLUSIVE == judged(folder).outcome


def test_a_storm_that_was_not_watched_to_its_end_is_a_wedge_that_is_not_confirmed(case):
    folder = case("13")
    told = observations(folder)
    told["watched"]["to"] = "12:03:30Z"
    told["requests"] = told["requests"][:2]
    told["scrapes"] = told["scrapes"][:2]
    del told["gauges"], told["load"]
    write(folder, told)
    verdict = judged(folder)
    assert (Outcome.WEDGED, False) == (verdict.outcome, verdict.wedge and verdict.wedge.confirmed)


def test_a_wave_that_met_waiting_sessions_lands(case):
    folder = case("14")
    aborted = (
        "[2026-06-20 19:00:26 TP0] Prefill bootstrap failed for request rank=0 req.rid='9f3c' req.bootstrap_room=77 "
        "with exception KVTransferError(bootstrap_room=77): Aborted by AbortReq.\n"
    )
    with (folder / "prefill.log").open("a") as log:
        log.write(aborted)
    (wave,) = judged(folder).waves
    assert (Answer.YES, 1) == (wave.landed, wave.server_aborts)
    (before,) = judged(case("14")).waves
    assert (Answer.NO, ("server_aborts >= 1: was 0",)) == (before.landed, before.unmet)


def test_the_census_holds_the_queues_of_its_moment(case):
    events = import_folder(case("14")).events
    census = next(event for event in events if isinstance(event, ev.WaveCensus))
    queues = {reading.name: reading.value for reading in census.queues if reading.node == "decode-0"}
    assert (60, 0, 0) == tuple(
        queues[name] for name in ("running_requests", "decode_prealloc_queue", "decode_transfer_queue")
    )
