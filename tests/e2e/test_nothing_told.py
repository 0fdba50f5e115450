"""No secret in any file of a run or on the terminal, though the target tells everybody; no machine in the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from echoing import gateway

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

KEY, GATE, GROUP, INLINE = "sk-one-7f3a91", 'gw"two\\9c1e', "sk-three-55aa0c", "inline-four-88b1"
MACHINE = "gpu7.example.net"
SCENARIO = """\
version: 1
name: tell-all
load:
  - {name: polite, sessions: 2, prompt_tokens: 20, max_tokens: 4, headers: {x-team: chaos}}
  - {name: rude, sessions: 2, prompt_tokens: 20, max_tokens: 4, headers: {x-rude: "1"}, api_key: "file:GROUP"}
observe: {settle: 1s, idle: 1s, baseline: 1s}
"""


def test_what_the_target_echoes_is_in_no_file_of_the_run(
    kept_lab, pdchaos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = kept_lab("sim", time_scale="0.05")
    monkeypatch.setenv("SECRET_OF_THE_TEST", KEY)
    (tmp_path / "gate").write_text(GATE + "\n")
    (tmp_path / "group").write_text(GROUP + "\n")
    scenario = tmp_path / "tell-all.yaml"
    scenario.write_text(SCENARIO.replace("GROUP", str(tmp_path / "group")))
    log = tmp_path / "gateway.log"
    with gateway(lab.router, log, MACHINE) as gate:
        plain = yaml.safe_load(lab.target.read_text())
        plain["router"] |= {"url": gate.url, "log": [*plain["router"]["log"], str(log)], "address": MACHINE}
        plain["decode"][0]["restart"] = f"curl -H 'x-api-key: {INLINE}' http://x"
        plain |= {"api_key": "env:SECRET_OF_THE_TEST", "headers": {"x-gateway": {"secret": "cmd:cat gate"}}}
        target = lab.target.with_name("told.yaml")
        target.write_text(yaml.safe_dump(plain))
        monkeypatch.chdir(tmp_path)
        ran = pdchaos.run(str(scenario), "--target", str(target), "--plain")
        assert {f"Bearer {KEY}", f"Bearer {GROUP}", GATE} == gate.heard
    assert all(secret in log.read_text() for secret in (GROUP, GATE))
    files = {path: path.read_bytes() for path in ran.folder.rglob("*") if path.is_file()}
    wanted = {"journal.jsonl", "verdict.json", "report.html", "junit.xml", "summary.md", "target.yaml", "scenario.yaml"}
    assert wanted <= {path.name for path in files}
    for secret in (KEY, GATE, GROUP, INLINE, GATE.replace("\\", "\\\\").replace('"', '\\"')):
        assert [] == [path for path, content in files.items() if secret.encode() in content], secret
        assert secret not in ran.output

    # It was there to be told: requests failed with it, a line was hit, a snapshot holds the log.
    journal = (ran.folder / "journal.jsonl").read_text()
    ended = [event["detail"] for event in ran.events if event["type"] == "request.ended" and event.get("status") == 401]
    assert any("authorization=Bearer [redacted] x-gateway=[redacted] at router?" in detail for detail in ended), ended
    lines = [event["line"] for event in ran.events if event["type"] == "log.hit" and "panicked" in event["line"]]
    assert any("Bearer [redacted] x-gateway=[redacted] from router" in line for line in lines), lines
    forensics = [path for path in files if "forensics" in path.parts and b"gate.rs" in files[path]]
    assert forensics
    kept = yaml.safe_load((ran.folder / "target.yaml").read_text())
    assert "curl -H 'x-api-key: [redacted]' http://x" == kept["decode"][0]["restart"]
    assert MACHINE == kept["router"]["address"]
    for text in (journal, (ran.folder / "verdict.json").read_text()):
        assert MACHINE not in text
