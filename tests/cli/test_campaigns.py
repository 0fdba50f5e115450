"""Campaigns on the command line, without a deployment: judged again, planned, refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from test_commands import JOURNALS, pdchaos

from chaos.model.campaign import FORMAT, Begun, Ended, PlannedRun

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = """\
version: 1
name: small
load: [{name: agents, sessions: 60}]
timeline: [{id: wave, kill: {group: agents}, at: 5s}]
trials: {count: 20, until: wedged}
sweep: {load.sessions: [10, 20, 40]}
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A campaign of two runs, each with the journal of a real one."""
    runs = tuple(PlannedRun(number=n, folder=f"runs/{n:03d}", dose="", trial=n) for n in (1, 2))
    begun = Begun(
        format=FORMAT,
        campaign_id="c0",
        tool_version="0",
        utc="x",
        scenario="s",
        about="",
        target="lab:sim",
        allow=("healthy",),
        until="",
        runs=runs,
    )
    for run, name in zip(runs, ("healthy-two-waves", "wedged-by-abort"), strict=True):
        (tmp_path / run.folder).mkdir(parents=True)
        (tmp_path / run.folder / "journal.jsonl").write_bytes((JOURNALS / f"{name}.jsonl").read_bytes())
    lines = (begun, Ended(reason="", interrupted=False))
    (tmp_path / "campaign.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return tmp_path


def test_a_recorded_campaign_is_judged_again_to_the_same_bytes(recorded: Path) -> None:
    first = pdchaos("judge", str(recorded), "--json")
    second = pdchaos("judge", str(recorded / "campaign.jsonl"), "--json")
    assert (1, first.stdout) == (second.returncode, second.stdout)
    told = json.loads(first.stdout)
    assert ("wedged", ["healthy", "wedged"]) == (told["outcome"], [trial["outcome"] for trial in told["trials"]])
    shown = pdchaos("judge", str(recorded), "--write")
    assert (1, True) == (shown.returncode, "1 of 2 wedged: 50 %" in shown.stdout)
    assert (recorded / "campaign.json").read_text() == first.stdout
    names = {"campaign.json", "report.html", "junit.xml", "summary.md"}
    assert names <= {path.name for path in recorded.iterdir()}
    assert (recorded / "runs/002/report.html").exists()


def test_a_run_whose_folder_is_gone_is_doubt(recorded: Path) -> None:
    (recorded / "runs/002/journal.jsonl").unlink()
    again = pdchaos("judge", str(recorded), "--json")
    assert (3, "its record is gone") == (again.returncode, json.loads(again.stdout)["trials"][1]["headline"])


def test_plan_tells_how_many_runs_and_how_long(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    said = pdchaos("plan", str(tmp_path / "s.yaml"), "-t", "lab:sim", "--set", "time_scale=0.05")
    assert 0 == said.returncode
    for part in ("load.sessions=40: 20 trials", "60, each on a freshly started deployment, until the first that"):
        assert part in said.stdout
    lone = pdchaos("plan", "abort-cascade", "-t", "lab:sim").stdout
    assert ("takes", False) == (lone.split("takes")[0] and "takes", "freshly" in lone)


def test_trials_on_a_target_that_nobody_can_restart_are_refused_with_the_place_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    target = tmp_path / "t.yaml"
    target.write_text(
        "version: 1\nname: here\nenvironment: staging\nallow: [kill]\nrouter: {url: 'http://127.0.0.1:1'}\n"
        "prefill: [{url: 'http://127.0.0.1:2'}]\ndecode: [{url: 'http://127.0.0.1:3'}]\n"
    )
    words = ("run", "s.yaml", "-t", "t.yaml", "--reports", "reports")
    said = pdchaos(*words, cwd=tmp_path)
    assert (5, True) == (said.returncode, "s.yaml:5:17: every trial takes a freshly started deployment" in said.stderr)
    assert "allow: [kill, restart]" in said.stderr
    target.write_text(target.read_text().replace("allow: [kill]", "restart: 'exit 3'\nallow: [kill]"))
    assert "does not allow" in pdchaos(*words, "--with", "trials.count=1", cwd=tmp_path).stderr
    assert not (tmp_path / "reports").exists()


def test_a_deployment_that_never_restarts_ends_the_campaign_with_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "t.yaml").write_text(
        "version: 1\nname: here\nenvironment: staging\nallow: [kill, restart]\nrestart: 'echo no host; exit 3'\n"
        "router: {url: 'http://127.0.0.1:1'}\nprefill: [{url: 'http://127.0.0.1:2'}]\n"
        "decode: [{url: 'http://127.0.0.1:3'}]\n"
    )
    said = pdchaos("run", "s.yaml", "-t", "t.yaml", "--reports", "reports", cwd=tmp_path)
    assert (4, 3) == (said.returncode, said.stderr.count("ended with 3: no host"))
    (folder,) = (tmp_path / "reports").iterdir()
    told = json.loads((folder / "campaign.json").read_text())
    assert ("3 runs in a row could not begin", 3) == (told["stopped"], len(told["trials"]))
    assert "no host" in told["trials"][0]["headline"]
