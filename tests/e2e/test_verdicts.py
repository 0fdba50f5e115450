"""The embedded lab, the shipped scenarios and the real command: each comes to the right verdict."""

from __future__ import annotations

import os
import signal

import pytest

pytestmark = pytest.mark.e2e


def judged_again(pdchaos, ran) -> bytes:
    again = pdchaos.finish(pdchaos.start("judge", str(ran.folder), "--json"))
    assert ran.code == again.code
    return again.output.encode()


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
    assert verdict["not_examined"]
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
    assert lab.serves()


def test_a_process_that_dies_on_the_path_is_a_crash_not_a_wedge(pdchaos, kept_lab) -> None:
    lab = kept_lab("sim", time_scale="0.05")
    running = pdchaos.start_run("abort-cascade", "--target", str(lab.target), "--plain")
    pdchaos.await_output("recovery", running)
    os.kill(lab.pids["prefill-0"], signal.SIGKILL)
    ran = pdchaos.finish(running)
    assert (1, "crashed") == (ran.code, ran.verdict["outcome"])
    assert "prefill-0" in ran.verdict["headline"] + " ".join(ran.verdict["reasons"])
