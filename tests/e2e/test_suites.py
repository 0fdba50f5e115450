"""A suite of somebody else with pdchaos installed, its warnings errors, its tests async: real labs, the real judge."""

from __future__ import annotations

import signal
from xml.etree import ElementTree as ET

import pytest

pytestmark = pytest.mark.e2e

SCENARIO = """\
version: 1
name: short
load:
  - {name: agents, sessions: 30, rounds: 2, prompt_tokens: 300, max_tokens: 2500, timeout: 120s, api: chat,
     arrival: {ramp: 2s}, saturate: {waiting: 10, max_sessions: 200}}
timeline:
  - {id: wave, kill: {group: agents, sessions: all, how: sigkill}, when: {waiting: ">= 10"}, give_up: 30s,
     aim: {waiting: ">= 10", server_aborts: ">= 1"}}
canary: {every: 300ms}
observe: {settle: 10s, at_most: engine-timeouts, idle: 20s, baseline: 1s}
expect: {recover_within: 60s, allow: [healthy]}
"""
SUITE = """\
import asyncio
import pytest

FAST = {"time_scale": 0.05}

@pytest.mark.wedge_sensitive("short.yaml", target="lab:sim", set_=FAST)
async def test_a_release_with_the_fix_survives(wedge_run):
    ours = asyncio.get_running_loop()
    run = wedge_run()
    assert ours is asyncio.get_running_loop()
    assert "healthy" == run.verdict.outcome
    await asyncio.sleep(0)

@pytest.mark.wedge_sensitive("short.yaml", target="lab:sim@nixl-abort-unhandled", set_=FAST,
                             with_={"observe.at_most": "120s"})
def test_a_release_with_the_bug():
    raise AssertionError("its body is not reached")

@pytest.mark.wedge_sensitive("short.yaml", target="gone.yaml")
def test_nobody_is_there():
    pass
"""
GONE = """\
version: 1
name: gone
environment: staging
allow: [kill]
router: {url: "http://127.0.0.1:9"}
prefill: [{url: "http://127.0.0.1:10"}]
decode: [{url: "http://127.0.0.1:11"}]
"""
SETTINGS = """\
[pytest]
addopts = --strict-markers
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""


@pytest.fixture
def suite(tmp_path):
    folder = tmp_path / "suite"
    folder.mkdir()
    for name, text in (
        ("short.yaml", SCENARIO),
        ("gone.yaml", GONE),
        ("pytest.ini", SETTINGS),
        ("test_it.py", SUITE),
    ):
        (folder / name).write_text(text)
    return folder


def test_the_suite_fails_for_the_release_with_the_bug_alone_and_for_what_is_not_there(pdchaos, suite) -> None:
    words = ("-m", "wedge_sensitive", "--pdchaos-reports", str(pdchaos.reports), "--junitxml=junit.xml")
    process = pdchaos.start(*words, module="pytest", cwd=suite)
    code, said = process.wait(240), pdchaos.output()
    assert (1, []) == (code, pdchaos.leftovers()), said
    assert "2 failed, 1 passed" in said
    cases = {case.get("name"): case for case in ET.parse(suite / "junit.xml").findall(".//testcase")}  # noqa: S314
    told = {
        name: {each.get("name"): each.get("value") for each in case.findall(".//property")}
        for name, case in cases.items()
    }
    assert "healthy" == told["test_a_release_with_the_fix_survives"]["pdchaos_outcome"]
    wedged = told["test_a_release_with_the_bug"]
    assert "wedged" == wedged["pdchaos_outcome"]
    failure = cases["test_a_release_with_the_bug"].find("failure").text
    assert failure.startswith("WEDGED (silent, total")
    for part in (
        "sgl-project/sglang#30352",
        f"judge again: pdchaos judge {wedged['pdchaos_run']}",
        "short.yaml --target lab:sim@nixl-abort-unhandled --with observe.at_most=120s --set time_scale=0.05",
    ):
        assert part in failure
    missing = cases["test_nobody_is_there"].find("failure").text
    assert missing.startswith("target unfit: "), missing
    for inside in ("Traceback", "chaos/", "During handling", "its body is not reached"):
        assert inside not in failure + missing
    again = pdchaos.finish(pdchaos.start("judge", wedged["pdchaos_run"]))
    assert (1, True) == (again.code, "WEDGED" in again.output)


def test_a_ctrl_c_lets_the_run_come_to_its_end_and_stops_the_suite(pdchaos, suite) -> None:
    words = ("-m", "wedge_sensitive", "--pdchaos-reports", str(pdchaos.reports), "-s")
    process = pdchaos.start(*words, module="pytest", cwd=suite)
    pdchaos.await_output("phase     baseline", process)
    process.send_signal(signal.SIGINT)
    ran = pdchaos.finish(process)
    assert (pytest.ExitCode.INTERRUPTED, []) == (ran.code, pdchaos.leftovers()), ran.output
    assert ("aborted", "clean", 130) == tuple(ran.verdict[key] for key in ("status", "cleanup", "exit_code"))
    assert "interrupted: " in ran.output
    assert "1 failed" in ran.output
    assert "Traceback" not in ran.output
