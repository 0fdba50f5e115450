"""Trials on fresh labs with the real command: only whole runs, stopped by the first Ctrl-C, judged from the folder."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

SCENARIO = """\
version: 1
name: tiny
load:
  - {name: agents, sessions: 16, prompt_tokens: 300, max_tokens: 600, timeout: 60s, arrival: {ramp: 1s},
     saturate: {waiting: 6, max_sessions: 200}}
timeline:
  - {id: wave, kill: {group: agents}, when: {waiting: ">= 6"}}
trials: {count: 4}
observe: {settle: 10s, idle: 20s, baseline: 5s}
"""


def test_the_first_ctrl_c_lets_the_present_trial_end_and_what_is_there_is_summarised(pdchaos, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    words = (str(tmp_path / "tiny.yaml"), "--target", "lab:sim", "--set", "time_scale=0.05", "--plain")
    running = pdchaos.start_run(*words)
    pdchaos.await_output("run 2 of 4 begins", running, within=120)
    pdchaos.await_output("phase     load", running, within=120)
    before = pdchaos.output().count("phase     load")
    while pdchaos.output().count("phase     load") < max(before, 2):
        pdchaos.await_output("phase     load", running)
    running.send_signal(signal.SIGINT)
    ran = pdchaos.finish(running)
    assert 130 == ran.code, ran.output
    assert [] == pdchaos.leftovers(within=10)
    told = json.loads((ran.folder / "campaign.json").read_text())
    assert [(1, "completed"), (2, "completed")] == [(trial["number"], trial["status"]) for trial in told["trials"]]
    # On a busy machine one may have had no floors to look at; what it may not be is counted.
    healthy = [trial["number"] for trial in told["trials"] if trial["outcome"] == "healthy"]
    assert {"healthy"} == {trial["outcome"] for trial in told["trials"]} - {"inconclusive"}
    assert ("SIGINT", len(healthy)) == (told["stopped"], told["doses"][0]["counted"])
    below = {1: "below 95 %", 2: "below 78 %"}[len(healthy)]
    assert told["headline"].startswith(f"0 of {len(healthy)} wedged: {below} at 95 %; survived"), told["headline"]
    seeds = [json.loads((ran.folder / f"runs/00{n}/journal.jsonl").read_text().split("\n")[0])["seed"] for n in (1, 2)]
    assert [1, 2] == seeds
    again = pdchaos.finish(pdchaos.start("judge", str(ran.folder), "--json"))
    assert (130, (ran.folder / "campaign.json").read_text()) == (again.code, again.output)
    for name in ("report.html", "junit.xml", "summary.md", "scenario.yaml", "runs/001/report.html"):
        assert (ran.folder / name).stat().st_size > 0
