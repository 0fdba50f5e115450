"""`pdchaos autopsy` as people use it: a folder in, a panel and a run folder out, and no traceback for a mistake."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"


def pdchaos(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    start = [sys.executable, "-m", "chaos"]
    return subprocess.run([*start, *words], capture_output=True, text=True, check=False, cwd=cwd, env=env, timeout=60)


def case(number: str, folder: Path) -> Path:
    (found,) = CASES.glob(f"{number}-*")
    return Path(shutil.copytree(found, folder / "incident"))


@pytest.mark.parametrize(
    ("number", "code", "word"), [("01", 1, "WEDGED"), ("02", 0, "HEALTHY"), ("14", 3, "INCONCLUSIVE")]
)
def test_an_incident_is_judged_and_leaves_what_a_run_leaves(number, code, word, tmp_path):
    case(number, tmp_path)
    said = pdchaos("autopsy", "incident", "--out", "told", cwd=tmp_path)
    assert (code, "") == (said.returncode, said.stderr)
    assert word in said.stdout
    assert "report: told/report.html" in said.stdout
    left = {path.name for path in (tmp_path / "told").iterdir()}
    assert {"verdict.json", "report.html", "junit.xml", "summary.md", "journal.jsonl", "observations.yaml"} <= left
    again = pdchaos("judge", "told", "--json", cwd=tmp_path)
    assert (code, (tmp_path / "told" / "verdict.json").read_text()) == (again.returncode, again.stdout)


def test_without_out_a_folder_is_made_among_the_reports(tmp_path):
    case("02", tmp_path)
    assert 0 == pdchaos("autopsy", "incident", "--reports", "there", cwd=tmp_path).returncode
    (made,) = (tmp_path / "there").iterdir()
    assert made.name.startswith("20260620T150930Z-abort-wave-")


def test_lines_that_nobody_can_read_are_counted_and_shown(tmp_path):
    case("05", tmp_path)
    said = pdchaos("autopsy", "incident", "--out", "told", cwd=tmp_path)
    counted = "12 lines: 8 used as evidence, 3 without meaning for it, 1 that could not be read"
    assert f"prefill-0: prefill.log: {counted}\n" in said.stdout
    assert "1 of 12 lines of prefill.log could not be read (line 8)" in said.stderr
    verdict = json.loads((tmp_path / "told" / "verdict.json").read_text())
    assert "prefill-0: 1 of 12 lines of prefill.log could not be read (line 8)" in verdict["not_examined"]


def test_init_writes_a_file_to_start_from_and_overwrites_nothing(tmp_path):
    assert 0 == pdchaos("autopsy", "--init", "new", cwd=tmp_path).returncode
    assert "valid observations" in pdchaos("check", "new/observations.yaml", cwd=tmp_path).stdout
    again = pdchaos("autopsy", "--init", "new", cwd=tmp_path)
    assert (2, True) == (again.returncode, "exists already; nothing was written" in again.stderr)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("autopsy", "absent"), "absent is no folder"),
        (("autopsy", "empty"), "pdchaos autopsy --init empty"),
        (("autopsy", "incident", "--out", "empty"), "empty exists already; nothing was written"),
        (("autopsy", "wrong"), "wrong/observations.yaml:1:1: unknown key `versio` (did you mean version?)"),
    ],
)
def test_a_mistake_is_answered_with_a_hint_and_leaves_nothing(words, told, tmp_path):
    case("02", tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "observations.yaml").write_text("versio: 1\n")
    said = pdchaos(*words, cwd=tmp_path)
    assert (2, True) == (said.returncode, told in said.stderr), said.stderr
    assert "Traceback" not in said.stderr
    assert {"empty", "incident", "wrong"} == {path.name for path in tmp_path.iterdir()}
