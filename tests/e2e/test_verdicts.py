"""The embedded lab, the shipped scenarios and the real command: each comes to the right verdict."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

pytestmark = pytest.mark.e2e


def judged_again(pdchaos, ran) -> bytes:
    again = pdchaos.finish(pdchaos.start("judge", str(ran.folder), "--json"))
    assert ran.code == again.code
    return again.output.encode()


def assert_the_dead_thread_is_shown(ran) -> None:
    """What was saved at the first suspicion shows it, the baseline shows it alive, the verdict says so."""
    name = "Thread-1 (bootstrap_thread)"
    saved = {one["folder"]: one for one in ran.verdict["saved"]}
    (first,) = [folder for folder, one in saved.items() if one["reason"] in ("fatal-line", "canary-overdue")]
    (last,) = [folder for folder, one in saved.items() if one["reason"] == "not-recovered"]
    assert name in (ran.folder / "forensics/0-baseline/prefill-0-stacks.txt").read_text()
    for folder in (first, last):
        assert name not in (ran.folder / folder / "prefill-0-stacks.txt").read_text()
        assert f"prefill-0: thread {name} gone, 3 stacks saved" in saved[folder]["shows"]
        for file in ("prefill-0-metrics.prom", "decode-0-info.json", "router-processes.json", "decode-0-log.txt"):
            assert (ran.folder / folder / file).stat().st_size > 0
    assert "LISTEN 127.0.0.1" in (ran.folder / first / "router-processes.json").read_text()
    assert any(f"prefill-0: thread {name}" in reason for reason in ran.verdict["reasons"])
    (finding,) = [one for one in ran.verdict["findings"] if one["id"] == "threads-alive"]
    assert ("no", "damaged") == (finding["answer"], finding["outcome"])
    assert "saved" in ran.output


def test_the_incident_is_called_wedged_with_its_cause_and_proof(pdchaos) -> None:
    ran = pdchaos.run("abort-cascade", "--target", "lab:sim@nixl-abort-unhandled")
    verdict = ran.verdict
    assert (1, "wedged") == (ran.code, verdict["outcome"])
    wedge = verdict["wedge"]
    assert (True, True, True, "prefill") == (wedge["total"], wedge["silent"], wedge["confirmed"], wedge["side"])
    cause = verdict["causes"][0]
    assert ("sgl-project/sglang#30352", "0.5.16") == (cause["upstream"], cause["fixed_in"])
    (wave,) = verdict["waves"]
    assert "yes" == wave["landed"]
    assert wave["phases"]["waiting"] >= 20
    assert 1 <= wave["server_aborts"] <= wave["phases"]["waiting"] + wave["phases"]["connecting"]
    assert [("routed", "no"), ("prefill-0>decode-0", "no")] == [(p["path"], p["serves"]) for p in verdict["paths"]]
    assert verdict["not_examined"]
    assert_the_dead_thread_is_shown(ran)
    for word in ("WEDGED", "silent", "total", "prefill", "sgl-project/sglang#30352", "0.5.16", "server aborts"):
        assert word in ran.output
    assert (ran.folder / "verdict.json").read_bytes() == judged_again(pdchaos, ran)
    assert "nixl-abort-unhandled" not in (ran.folder / "journal.jsonl").read_text()
    for name in ("report.html", "junit.xml", "summary.md", "scenario.yaml", "target.yaml", "packs/sglang.yaml"):
        assert (ran.folder / name).stat().st_size > 0


def test_the_same_attack_on_a_build_without_the_bug_is_healthy(pdchaos) -> None:
    ran = pdchaos.run("abort-cascade", "--target", "lab:sim@healthy")
    verdict = ran.verdict
    assert (0, "healthy") == (ran.code, verdict["outcome"])
    assert [("routed", "yes"), ("prefill-0>decode-0", "yes")] == [(p["path"], p["serves"]) for p in verdict["paths"]]
    assert ["yes"] == [one["answer"] for one in verdict["findings"] if one["id"] == "threads-alive"]
    assert [("yes", True)] * 2 == [(wave["landed"], wave["server_aborts"] >= 1) for wave in verdict["waves"]]
    assert [] == [e for e in ran.events if e["type"] == "request.ended" and e.get("ended_by") == "harness"]


def test_a_wave_against_streaming_sessions_did_not_test_the_incident(pdchaos) -> None:
    ran = pdchaos.run("abort-cascade-decode-phase", "--target", "lab:sim@nixl-abort-unhandled")
    assert (3, "inconclusive") == (ran.code, ran.verdict["outcome"])
    assert any("server_aborts" in unmet for unmet in ran.verdict["waves"][0]["unmet"])
    assert "server_aborts" in ran.output


def test_a_soak_and_a_ctrl_c_never_send_the_fatal_abort(pdchaos, kept_lab) -> None:
    lab = kept_lab("sim@nixl-abort-unhandled")
    stopped = pdchaos.start_run("abort-cascade", "--target", str(lab.target), "--plain")
    pdchaos.await_output("baseline", stopped)
    stopped.send_signal(signal.SIGINT)
    ran = pdchaos.finish(stopped)
    assert 130 == ran.code
    assert ("aborted", "clean") == (ran.verdict["status"], ran.verdict["cleanup"])
    assert lab.serves()
    pdchaos.reports = pdchaos.reports.with_name("soak")
    ran = pdchaos.run("soak-no-fault", "--target", str(lab.target))
    assert (0, "healthy") == (ran.code, ran.verdict["outcome"])
    phases = [event["phase"] for event in ran.events if event["type"] == "phase.entered"]
    assert ["baseline", "load", "watching"] == phases[:3]  # nothing was broken: there is no recovery to wait for
    assert lab.serves()


def test_a_process_that_dies_on_the_path_is_a_crash_not_a_wedge(pdchaos, kept_lab) -> None:
    lab = kept_lab("sim", time_scale="0.05")
    running = pdchaos.start_run("abort-cascade", "--target", str(lab.target), "--plain")
    pdchaos.await_output("recovery", running)
    os.kill(lab.pids["prefill-0"], signal.SIGKILL)
    ran = pdchaos.finish(running)
    assert (1, "crashed") == (ran.code, ran.verdict["outcome"])
    assert "prefill-0" in ran.verdict["headline"] + " ".join(ran.verdict["reasons"])


def test_a_foreign_frame_wedges_a_release_without_a_known_bug_and_no_fixed_one_is_blamed(pdchaos) -> None:
    ran = pdchaos.run("foreign-frame", "--target", "lab:sim", "--set", "time_scale=0.05")
    verdict = ran.verdict
    assert (1, "wedged") == (ran.code, verdict["outcome"])
    assert (True, "prefill") == (verdict["wedge"]["silent"], verdict["wedge"]["side"])
    assert {("", "")} == {
        (cause["upstream"], cause["fixed_in"]) for cause in verdict["causes"] if "guard" in cause["title"]
    }
    assert ("yes", ["prefill-0"]) == (verdict["waves"][0]["landed"], verdict["waves"][0]["nodes"])


def test_a_freeze_is_undone_and_survived_and_does_not_outlive_a_pdchaos_that_is_killed(pdchaos, kept_lab) -> None:
    lab = kept_lab("sim", time_scale="0.05")
    frozen = pdchaos.start_run(
        "freeze-worker", "--target", str(lab.target), "--plain", "--with", "timeline.freeze.for=2h"
    )
    pdchaos.await_output("freeze verified", frozen)
    assert "stopped" == psutil.Process(lab.pids["decode-0"]).status()
    frozen.kill()
    frozen.wait()
    assert [] == pdchaos.leftovers(within=30)
    assert "stopped" != psutil.Process(lab.pids["decode-0"]).status()
    assert lab.serves()
    pdchaos.reports = pdchaos.reports.with_name("survived")
    ran = pdchaos.run("freeze-worker", "--target", str(lab.target))
    assert (0, "healthy") == (ran.code, ran.verdict["outcome"])
    assert [True] * 5 == [event["ok"] for event in ran.events if event["type"] == "fault.step"]


RANK = """\
version: 1
name: frozen-rank
load: [{name: users, sessions: 6, rounds: 500, prompt_tokens: 60, max_tokens: 64, think_time: 1s, timeout: 10m}]
timeline: [{id: freeze, signal: {where: {role: decode, rank: 1}, send: STOP}, at: 2s}]
observe: {settle: 5s, at_most: 60s, idle: 20s}
expect: {recover_within: 30s, allow: [healthy]}
"""


def test_one_frozen_rank_of_two_is_a_partial_wedge_and_its_hanging_requests_do_not_hold_up_the_run(
    pdchaos, tmp_path
) -> None:
    scenario = tmp_path / "frozen-rank.yaml"
    scenario.write_text(RANK)
    ran = pdchaos.run(str(scenario), "--target", "lab:sim", "--set", "dp=2")
    verdict = ran.verdict
    assert (1, "wedged", "clean") == (ran.code, verdict["outcome"], verdict["cleanup"]), verdict["headline"]
    assert not verdict["wedge"]["total"]
    serves = {path["path"]: path["serves"] for path in verdict["paths"]}
    assert ("yes", "no") == (serves["prefill-0>decode-0 dp0"], serves["prefill-0>decode-0 dp1"])
    assert verdict["duration_s"] < 300  # some users' requests wait for up to ten minutes


def test_what_a_target_lacks_or_does_not_allow_is_refused_before_anything_is_touched(pdchaos, kept_lab) -> None:
    lab = kept_lab("sim", time_scale="0.05")
    lonely = pdchaos.run("kill-one-of-two", "--target", str(lab.target))
    assert (5, True) == (lonely.code, "it takes 2 decode nodes, and the target has 1" in lonely.output)
    strict = lab.target.with_name("strict.yaml")
    text = lab.target.read_text()
    strict.write_text(text[: text.index("allow:")] + "allow: [kill]\n" + text[text.index("timeouts:") :])
    refused = pdchaos.run("freeze-worker", "--target", str(strict))
    assert (5, True) == (refused.code, "allow: [kill, signal]" in refused.output)
    assert lab.serves()


def test_users_that_hang_are_left_once_no_timeout_can_help_them_and_what_the_fault_stranded_is_a_leak(pdchaos) -> None:
    options = ("--set", "transfer_ms=500", "--set", "slots=40", "--set", "time_scale=0.05")
    words = ("restart-decode-under-load", "--target", "lab:sim@stranded-prefill-kv", *options)
    ran = pdchaos.run(*words, "--with", "load.users.sessions=20", "--with", "observe.baseline=3s")
    assert ("leaking", 1) == (ran.verdict["outcome"], ran.code)
    phases = {event["phase"]: event["t_ns"] for event in ran.events if event["type"] == "phase.entered"}
    left = [event for event in ran.events if event["type"] == "request.ended" and event.get("ended_by") == "harness"]
    users = min(event["t_ns"] for event in left if event["kind"] == "load")
    assert phases["teardown"] < users < phases["teardown"] + 60 * 10**9  # they would have waited for 90 s
    overdue = {event["req"] for event in ran.events if event["type"] == "request.overdue" and event["t_ns"] < users}
    assert overdue - {event["req"] for event in left if event["t_ns"] > phases["idle"]}  # canaries that hung went, too
