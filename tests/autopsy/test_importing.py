"""Files and notes become the events that a run of ours would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from chaos.autopsy import Imported, import_folder
from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.errors import InvalidFile, UserError
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000_000
BEGIN = SECOND  # the journal's clock when the watch begins
TOLD = {
    "version": 1,
    "name": "it",
    "date": "2026-06-20",
    "watched": {"from": "14:00:00Z", "to": "14:10:00Z"},
    "deployment": {"engine": "sglang", "nodes": [{"role": "prefill"}, {"role": "decode"}]},
}
BATCH = (
    "[2026-06-20 {at} TP0] Prefill batch, #new-seq: 1, #new-token: {tokens}, #cached-token: 0, token usage: 0.31, "
    "#running-req: 0, #queue-req: {queue}, #pending-token: 5120, #bootstrap-req: 21, #inflight-req: 6, cuda graph: "
    "False, input throughput (token/s): 8123.44\n"
)
GUARD = "AssertionError: First message should be b'NixlMsgGuard'. Foreign traffic?\n"
TRACEBACK = (
    "Exception in thread Thread-12 (bootstrap_thread):\n"
    "Traceback (most recent call last):\n"
    '  File "conn.py", line 1849, in bootstrap_thread\n'
    "    assert (\n" + GUARD
)
ACCESS = '[2026-06-20 14:00:30] INFO:     10.0.0.9:41712 - "GET {path} HTTP/1.1" {status}\n'


def imported(folder: Path, log: str = "", **sections: object) -> Imported:
    """Import a folder with these sections and perhaps a log of the prefill."""
    told = {**TOLD, **sections}
    if log:
        (folder / "prefill.log").write_text(log)
        told.setdefault("logs", [{"file": "prefill.log", "node": "prefill-0"}])
    (folder / "observations.yaml").write_text(yaml.safe_dump(copied(told)))
    return import_folder(folder)


def copied(value: object) -> object:
    """The same values, none of them twice the same object: YAML would make an alias of it."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def of_type(found: Imported, kind: type) -> list:
    return [event for event in found.events if isinstance(event, kind)]


def at(event: ev.Event) -> float:
    """Seconds since the watch began."""
    return (event.t_ns - BEGIN) / SECOND


# ------------------------------------------------------------------------------------------------ logs


def test_a_traceback_without_stamps_is_dated_by_the_line_before_it(tmp_path):
    log = "[2026-06-20 14:02:12 TP0] one\n" + TRACEBACK + "[2026-06-20 14:05:00 TP0] later\n"
    hits = of_type(imported(tmp_path, log), ev.LogHit)
    assert ["bootstrap-thread-excepthook", "nixl-guard-assert"] == [hit.signature for hit in hits]
    assert [132, 132] == [int(at(hit)) for hit in hits]
    assert hits[0].t_ns < hits[1].t_ns
    assert ["2026-06-20 14:02:12"] * 2 == [hit.log_time for hit in hits]


def test_what_stands_before_the_first_stamp_is_dated_by_that(tmp_path):
    hits = of_type(imported(tmp_path, GUARD + "[2026-06-20 14:02:12 TP0] one\n"), ev.LogHit)
    assert [pytest.approx(132, abs=1e-6)] == [at(hit) for hit in hits]


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("[2026-06-20 14:02:12 TP0] ", 132),
        ("[2026-06-20 14:02:12.250] ", 132.25),
        ("2026-06-20T14:02:12.500000000Z stdout F ", 132.5),
        ("2026-06-20T16:02:12+02:00 ", 132),
        ("\x1b[2m2026-06-20T14:02:12.125Z\x1b[0m ", 132.125),
        ("E0620 14:02:12.122900 4121 file.cc:7] ", 132.1229),
        ("[rank3]:[E620 14:02:12.122900428 ProcessGroupNCCL.cpp:616] ", 132.122900428),
        ("(EngineCore_DP0 pid=60) ERROR 06-20 14:02:12 [core.py:88] ", 132),
    ],
)
def test_every_grammar_of_stamps_is_read(tmp_path, stamp, seconds):
    (hit,) = of_type(imported(tmp_path, f"{stamp}{GUARD}"), ev.LogHit)
    assert at(hit) == pytest.approx(seconds, abs=1e-9)


def test_a_zone_in_the_stamp_wins_over_the_logs_offset(tmp_path):
    logs = [{"file": "prefill.log", "node": "prefill-0", "utc_offset": "-07:00"}]
    log = f"[2026-06-20 07:02:12 TP0] {GUARD}2026-06-20T14:02:12Z {GUARD}"
    assert [132, 132] == [int(at(hit)) for hit in of_type(imported(tmp_path, log, logs=logs), ev.LogHit)]


@pytest.mark.parametrize(
    ("since", "until", "offset"),
    [
        ("2026-12-31T23:58:00Z", "2027-01-01T00:10:00Z", "+00:00"),
        ("2027-01-01T06:58:00Z", "2027-01-01T07:10:00Z", "-07:00"),
    ],
)
def test_stamps_without_a_year_are_read_over_new_year(tmp_path, since, until, offset):
    log = f"INFO 12-31 23:59:00 [a.py:1] {GUARD}INFO 01-01 00:01:00 [a.py:1] {GUARD}"
    logs = [{"file": "prefill.log", "node": "prefill-0", "utc_offset": offset}]
    found = imported(tmp_path, log, watched={"from": since, "to": until}, logs=logs)
    assert [60, 180] == [int(at(hit)) for hit in of_type(found, ev.LogHit)]


def test_lines_of_a_former_life_accuse_nobody_and_are_counted(tmp_path):
    log = f"[2026-06-19 14:02:12 TP0] x\n{TRACEBACK}[2026-06-20 14:02:12 TP0] y\n[2026-06-20 15:00:00 TP0] {GUARD}"
    found = imported(tmp_path, log)
    assert [] == of_type(found, ev.LogHit)
    assert (1, 7) == (found.logs[0].lines, found.logs[0].outside)
    (covered,) = of_type(found, ev.LogCovered)
    assert (1, "7 lines from outside the time watched") == (covered.lines, covered.note)


def test_progress_bars_tracebacks_and_levels_are_read_and_the_rest_is_counted(tmp_path):
    bar = " 37%|███▋      | 3/8 [00:01<00:02,  2.10it/s]\r 50%|█████     | 4/8 [00:02<00:02,  2.10it/s]\n"
    chained = (
        "Traceback (most recent call last):\n    x()\nKeyError: 'a'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n    y()\nValueError: b\n"
    )
    told = "--- restarted by the supervisor ---\n"
    log = f"[2026-06-20 14:00:01] up\n{bar}{chained}WARNING:  odd\n{told}[2026-06-20 14:02:00] on\n  at last\n"
    found = imported(tmp_path, log)
    lines = log.split("\n")
    assert [told.strip(), "  at last"] == [lines[number - 1] for number in found.logs[0].unparsed]
    assert [2] == [covered.unparsed for covered in of_type(found, ev.LogCovered)]
    (seen,) = of_type(found, ev.DeploymentSeen)
    assert any("2 of 14 lines of prefill.log could not be read (lines 13, 15)" in text for text in seen.not_examined)


def test_every_line_is_counted_once_also_beyond_those_that_are_kept(tmp_path):
    former = "[2026-06-19 14:02:12 TP0] x\n"
    log = former + f"[2026-06-20 14:02:12 TP0] {GUARD}" * 250 + "[2026-06-20 14:02:13 TP0] plain\n\nodd\n"
    read = imported(tmp_path, log).logs[0]
    assert (252, 250, 1, 1) == (read.lines, read.known, len(read.unparsed), read.outside)
    counted = "250 used as evidence, 1 without meaning for it, 1 that could not be read"
    assert f"prefill-0: prefill.log: 253 lines: {counted}, 1 from before or after the time watched" == read.counted


def test_an_access_line_that_names_its_process_is_read(tmp_path):
    access = '(APIServer pid=41) INFO:     10.3.0.9:41712 - "GET /health HTTP/1.1" 200 OK\n'
    found = imported(tmp_path, f"(EngineCore pid=60) INFO 06-20 14:02:12 [core.py:88] up\n{access}")
    assert ((), [132]) == (found.logs[0].unparsed, [int(at(seen)) for seen in of_type(found, ev.Liveness)])


def test_a_file_with_the_line_ends_of_another_system_is_read_alike(tmp_path):
    log = "[2026-06-20 14:02:12 TP0] one\n" + TRACEBACK + "odd\n"
    found = imported(tmp_path, log.replace("\n", "\r\n"))
    assert ["bootstrap-thread-excepthook", "nixl-guard-assert"] == [hit.signature for hit in of_type(found, ev.LogHit)]
    assert (7, (7,)) == (found.logs[0].lines, found.logs[0].unparsed)


def test_batch_lines_tell_levels_per_rank_and_add_up_what_was_done(tmp_path):
    log = BATCH.format(at="14:01:00", tokens=8192, queue=38) + BATCH.format(at="14:02:00", tokens=100, queue=0)
    told = of_type(imported(tmp_path, log), ev.LevelsTold)
    values = [{sample.name: sample.value for sample in event.samples} for event in told]
    assert [(38, 8192), (0, 8292)] == [(v["waiting_queue"], v["prefilled_tokens"]) for v in values]
    assert {"logged,rank=TP0"} == {sample.labels for event in told for sample in event.samples}
    assert {("prefill-0", "log", None)} == {(event.node, event.by, event.quiet_s) for event in told}


@pytest.mark.parametrize(("clock", "zone"), [("14:03", "+00:00"), ("16:33", "+02:30")])
def test_a_heartbeat_is_a_moment_on_the_journals_clock(tmp_path, clock, zone):
    logs = [{"file": "prefill.log", "node": "prefill-0", "utc_offset": zone}]
    line = "Health check failed. Server couldn't get a response. tic start time: x. last_heartbeat time: "
    log = f"[2026-06-20 {clock}:20] {line}{clock}:03\n"
    (told,) = of_type(imported(tmp_path, log, logs=logs), ev.LevelsTold)
    noted = [{"at": "14:03:20Z", "node": "prefill-0", "last": "14:03:03Z"}]
    (by_hand,) = of_type(imported(tmp_path, heartbeats=noted), ev.LevelsTold)
    assert [183 + 1] == [sample.value for sample in told.samples] == [sample.value for sample in by_hand.samples]


def test_health_checks_are_read_from_the_access_lines(tmp_path):
    log = "".join(
        ACCESS.format(path=path, status=status)
        for path, status in (
            ("/health", "200 OK"),
            ("/health_generate?x=1", "503 Service Unavailable"),
            ("/metrics", "200 OK"),
        )
    )
    seen = of_type(imported(tmp_path, log), ev.Liveness)
    assert [("/health", 200), ("/health_generate", 503)] == [(event.endpoint, event.status) for event in seen]
    assert [30, 30] == [int(at(event)) for event in seen]


def test_a_log_speaks_up_to_its_last_line_or_up_to_when_it_was_copied(tmp_path):
    log = "[2026-06-20 14:02:00] last\n"
    (covered,) = of_type(imported(tmp_path, log), ev.LogCovered)
    assert 120 == int(at(covered))
    logs = [{"file": "prefill.log", "node": "prefill-0", "until": "14:09:00Z"}]
    (covered,) = of_type(imported(tmp_path, log, logs=logs), ev.LogCovered)
    assert 540 == at(covered)


def test_a_flood_of_one_line_is_counted_and_not_kept(tmp_path):
    line = (
        "[2026-06-20 14:02:12 TP{rank}] Prefill bootstrap failed for request rank={rank} req.rid='{room}' "
        "req.bootstrap_room={room} with exception KVTransferError(bootstrap_room={room}): Aborted by AbortReq.\n"
    )
    log = "".join(line.format(rank=rank, room=room) for room in range(1, 301) for rank in (0, 1))
    hits = of_type(imported(tmp_path, log), ev.LogHit)
    assert 201 == len(hits)
    assert (200, "") == (hits[-1].count, hits[-1].key)
    assert 300 == len({hit.key for hit in hits[:-1]}) + hits[-1].count


# ------------------------------------------------------------------------------------------------ scrapes

TEXT = (
    "# scrape of both\n"
    'sglang:num_queue_reqs{engine_type="prefill",instance="10.0.0.1:30000",tp_rank="0"} 4.0\n'
    'sglang:num_queue_reqs{engine_type="decode",instance="10.0.0.2:30001",tp_rank="0"} 9.0\n'
)


def scrape(folder: Path, text: str = TEXT, **more: object) -> Imported:
    (folder / "m.txt").write_text(text)
    spec = {"file": "m.txt", "node": "prefill-0", "at": "14:01:00Z", "where": {"engine_type": "prefill"}, **more}
    return imported(folder, scrapes=[spec])


def test_a_scrape_of_several_nodes_is_read_for_the_one_that_is_picked_without_its_address(tmp_path):
    (event,) = of_type(scrape(tmp_path), ev.Scrape)
    assert [("waiting_queue", "engine_type=prefill,tp_rank=0", 4.0)] == [
        (sample.name, sample.labels, sample.value) for sample in event.samples
    ]
    assert (60, True) == (at(event), event.ok)


def test_a_scrape_at_rest_is_a_floor_and_another_one_is_none(tmp_path):
    assert [] == of_type(scrape(tmp_path), ev.LevelsTold)
    (rest,) = of_type(scrape(tmp_path, quiet_for="40s"), ev.LevelsTold)
    assert (40.0, "hand") == (rest.quiet_s, rest.by)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.rstrip("\n"), "cut: the last line has no end"),
        ("<html></html>\n", "is no Prometheus text"),
        ("", "is no Prometheus text: empty"),
        ("up 1\n", "holds no metric that the pack sglang knows of a prefill"),
    ],
)
def test_a_scrape_that_tells_nothing_is_refused_where_it_is_named(tmp_path, text, message):
    with pytest.raises(InvalidFile) as refused:
        scrape(tmp_path, text)
    assert message in str(refused.value)
    (problem,) = refused.value.problems
    assert (tmp_path / "observations.yaml").read_text().splitlines()[problem.line - 1][problem.column - 1 :] == "m.txt"


@pytest.mark.parametrize(("kept", "outcome"), [(0.34, Outcome.LEAKING), (0.004, Outcome.HEALTHY)])
def test_kv_memory_that_vllm_holds_at_rest_is_a_leak(tmp_path, kept, outcome):
    scrapes = []
    for name, at_, usage in (("before", "14:00:30Z", 0.004), ("after", "14:09:00Z", kept)):
        (tmp_path / name).write_text(f'vllm:kv_cache_usage_perc{{engine="0"}} {usage}\nvllm:num_requests_running 0.0\n')
        scrapes.append({"file": name, "node": "decode-0", "at": at_, "quiet_for": "25s"})
    found = imported(
        tmp_path,
        deployment={**TOLD["deployment"], "engine": "vllm"},
        scrapes=scrapes,
        actions=[{"at": "14:01:00Z", "did": "kill-clients", "sessions": {"waiting": 5}}],
        requests=[{"at": f"14:0{minute}:30Z", "ended": "complete", "took": "1s"} for minute in (1, 2, 3, 4, 5, 6)],
    )
    assert outcome is judge(found.events).outcome


# ------------------------------------------------------------------------------------------------ notes


@pytest.mark.parametrize(
    ("note", "ok", "error", "ended_by"),
    [
        ({"ended": "complete", "took": "1s"}, True, "", "server"),
        ({"ended": "complete", "took": "1s", "finish": "abort"}, False, "in-band", "server"),
        ({"ended": "complete", "took": "1s", "tokens": 0}, False, "no-tokens", "server"),
        ({"ended": "gave-up", "took": "60s"}, False, "timeout", "harness"),
        ({"ended": "refused"}, False, "refused", "error"),
        ({"ended": "reset", "took": "1s"}, False, "reset", "error"),
        ({"ended": "cut", "took": "1s", "status": 200}, False, "truncated", "error"),
        ({"ended": "error", "status": 502, "took": "1s"}, False, "status", "error"),
        ({"ended": "error", "status": 200, "took": "1s"}, False, "in-band", "error"),
    ],
)
def test_how_a_request_ended_is_what_a_canary_would_have_met(tmp_path, note, ok, error, ended_by):
    found = imported(tmp_path, requests=[{"at": "14:01:00Z", **note}])
    (ended,) = of_type(found, ev.RequestEnded)
    assert (ok, error, ended_by) == (ended.ok, ended.error, ended.ended_by)
    assert [60] == [at(event) for event in of_type(found, ev.RequestStarted)]


def test_a_request_that_is_still_open_is_overdue_and_has_no_end(tmp_path):
    found = imported(tmp_path, requests=[{"at": "14:01:00Z", "ended": "still-open"}])
    assert ([], [80]) == (
        of_type(found, ev.RequestEnded),
        [at(event) for event in of_type(found, ev.RequestOverdue)],
    )


@pytest.mark.parametrize(
    ("did", "kind", "stages", "ends"),
    [
        ("kill", "signal", ["applied", "verified"], True),
        ("terminate", "signal", ["applied", "verified"], True),
        ("restart", "restart", ["applied", "verified"], True),
        ("stop", "signal", ["applied", "verified", "reverted", "revert-verified"], False),
        ("other", "other", ["applied", "verified"], False),
    ],
)
def test_what_was_done_to_a_node_has_the_life_of_a_fault(tmp_path, did, kind, stages, ends):
    note = {"at": "14:01:00Z", "did": did, "nodes": ["decode-0"], "done_by": "14:03:00Z"}
    found = imported(tmp_path, actions=[note])
    steps = of_type(found, ev.FaultStep)
    assert stages == [step.stage for step in steps]
    assert ({kind}, {ends}, {("decode-0",)}) == (
        {step.kind for step in steps},
        {step.ends for step in steps},
        {step.nodes for step in steps},
    )
    assert 180 == at(steps[-1])
    assert [] == of_type(found, ev.WaveFired)


@pytest.mark.parametrize(("told", "lasts_s"), [({"done_by": "14:03:00Z"}, 120), ({}, None)])
def test_what_was_stopped_and_went_on_counts_from_then(tmp_path, told, lasts_s):
    found = imported(tmp_path, actions=[{"at": "14:01:00Z", "did": "stop", "nodes": ["decode-0"], **told}])
    assert [lasts_s] == [fault.lasts_s for fault in found.events[0].plan.faults]


def test_each_action_begins_a_cycle_and_what_was_done_at_once_shares_it(tmp_path):
    wave = {"did": "kill-clients", "sessions": {"waiting": 5}}
    kill = {"did": "kill", "nodes": ["prefill-0"]}
    actions = [{"at": "14:05:00Z", **wave}, {"at": "14:01:00Z", **wave}, {"at": "14:05:00Z", **kill}]
    found = imported(tmp_path, actions=actions)
    plan = found.events[0].plan
    assert [("wave", (1, 2)), ("kill-prefill-0", (2,))] == [(fault.id, fault.cycles) for fault in plan.faults]
    assert [(1, 60), (2, 300)] == [(fired.cycle, at(fired)) for fired in of_type(found, ev.WaveFired)]
    assert 2 == plan.cycles
    loads = [phase for phase in of_type(found, ev.PhaseEntered) if phase.phase == "load"]
    assert [(1, 60), (2, 300)] == [(phase.cycle, at(phase)) for phase in loads]


@pytest.mark.parametrize(("engine", "aim"), [("sglang", "server_aborts"), ("vllm", "waiting")])
def test_an_engine_that_never_tells_of_aborts_is_not_asked_for_them(tmp_path, engine, aim):
    wave = {"at": "14:01:00Z", "did": "kill-clients", "sessions": {"waiting": 5}}
    found = imported(tmp_path, deployment={**TOLD["deployment"], "engine": engine}, actions=[wave])
    assert [(aim, ">=", 1)] == [(b.name, b.op, b.value) for fault in found.events[0].plan.faults for b in fault.aim]


def test_a_fault_that_did_not_work_has_not_landed(tmp_path):
    note = {"at": "14:01:00Z", "did": "kill", "nodes": ["decode-0"], "failed": "no such process"}
    (step,) = of_type(imported(tmp_path, actions=[note]), ev.FaultStep)
    assert ("applied", False, "no such process") == (step.stage, step.ok, step.detail)


def test_the_watch_is_as_long_as_it_was_and_waits_for_the_engines_own_timeouts(tmp_path):
    deployment = {**TOLD["deployment"], "timeouts": {"waiting": "600s"}, "gauge_lag": "30s"}
    found = imported(tmp_path, deployment=deployment)
    assert 600 + 30 + 15 == found.events[0].plan.watch_s
    assert [600, 600] == [int(at(event)) for event in (found.events[-1], of_type(found, ev.PhaseEntered)[-1])]
    (seen,) = of_type(found, ev.DeploymentSeen)
    assert ["baseline", "teardown"] == [phase.phase for phase in of_type(found, ev.PhaseEntered)]
    assert {"waiting": 600.0, "bootstrap": 300.0} == {t.name: t.seconds for t in seen.timeouts}


@pytest.mark.parametrize(
    ("told", "state"),
    [("Zl", "zombie"), ("<defunct>", "zombie"), ("T", "stopped"), ("t+", "tracing-stop"), ("Ssl", "Ssl"), ("", "")]
    + [(word, word) for word in ("zombie", "stopped", "sleeping", "tracing-stop")],
)
def test_the_letters_of_ps_mean_what_the_words_of_the_probes_mean(tmp_path, told, state):
    look = {"at": "14:01:00Z", "node": "decode-0", "state": told}
    assert [state] == [seen.state for seen in of_type(imported(tmp_path, processes=[look]), ev.ProcessSeen)]


def test_events_are_numbered_without_a_gap_and_never_run_backwards(tmp_path):
    log = BATCH.format(at="14:01:00", tokens=1, queue=0) + TRACEBACK
    found = imported(tmp_path, log, requests=[{"at": "14:00:10Z", "ended": "refused"}])
    assert list(range(1, len(found.events) + 1)) == [event.seq for event in found.events]
    times = [event.t_ns for event in found.events]
    assert sorted(times) == times
    assert ("imported", "imported") == (found.events[0].origin, found.events[0].run_id)


def test_pairs_that_nobody_asked_are_said_not_to_be_examined(tmp_path):
    nodes = [{"role": "prefill"}, {"role": "prefill"}, {"role": "decode"}]
    request = {"at": "14:01:00Z", "path": "prefill-1>decode-0", "ended": "refused"}
    found = imported(tmp_path, deployment={"engine": "sglang", "nodes": nodes}, requests=[request])
    (seen,) = of_type(found, ev.DeploymentSeen)
    assert [("prefill-0>decode-0", False), ("prefill-1>decode-0", True)] == [
        (path.id, path.examined) for path in seen.paths if path.kind == "direct"
    ]


# ------------------------------------------------------------------------------------------------ mistakes


def test_every_mistake_in_the_files_is_told_at_once_where_they_are_named(tmp_path):
    (tmp_path / "old.log").write_text("[2026-06-20 07:02:12 TP0] one\n")
    (tmp_path / "bare.log").write_text("no stamp at all\n")
    logs = [
        {"file": "absent.log", "node": "prefill-0"},
        {"file": "old.log", "node": "prefill-0"},
        {"file": "bare.log", "node": "decode-0"},
    ]
    with pytest.raises(InvalidFile) as refused:
        imported(tmp_path, logs=logs)
    text = str(refused.value)
    assert 3 == len(refused.value.problems)
    assert "absent.log cannot be read: No such file or directory" in text
    assert "none of its 1 lines is from the time watched (is its utc_offset right?)" in text
    assert "not one line of it has a stamp" in text


def test_a_folder_without_observations_is_told_how_to_begin(tmp_path):
    with pytest.raises(UserError) as refused:
        import_folder(tmp_path)
    assert "pdchaos autopsy --init" in refused.value.hint
    with pytest.raises(UserError):
        import_folder(tmp_path / "absent")
