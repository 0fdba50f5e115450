"""Incidents that were written, and judged by their author, before this tool had seen any of them.

What it said of them at first is in `docs/first-tries.md`. They come from public reports of SGLang, Dynamo and vLLM, as
an operator would have collected them: other file names, stamps, colours, rotated and cut logs, missing pieces.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from incidents import SECTIONS, observations, write

from chaos.autopsy import import_folder
from chaos.judge import judge
from chaos.model.errors import UserError
from chaos.model.outcomes import Outcome

FOLDERS = sorted(path for path in (Path(__file__).parent / "blind").iterdir() if path.is_dir())


def expectation(folder: Path) -> dict:
    return yaml.safe_load((folder / "expected.yaml").read_text())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_incident_that_nobody_had_in_mind_comes_out_right(folder):
    expected = expectation(folder)
    verdict = judge(import_folder(folder).events)
    assert expected.pop("outcome") == verdict.outcome, verdict.headline
    if "cause" in expected:
        assert expected.pop("cause") == verdict.causes[0].signature
    assert expected == {key: getattr(verdict.wedge, key) for key in expected}


@pytest.mark.parametrize(
    "folder", [f for f in FOLDERS if expectation(f)["outcome"] != "healthy"], ids=lambda folder: folder.name
)
def test_what_was_not_collected_makes_none_of_them_healthy(folder, tmp_path):
    told = observations(folder)
    for section in SECTIONS:
        if not told.get(section):
            continue
        changed = tmp_path / section
        shutil.copytree(folder, changed)
        write(changed, {key: value for key, value in told.items() if key != section})
        try:
            outcome = judge(import_folder(changed).events).outcome
        except UserError:
            continue  # nothing is left that could be judged
        assert Outcome.HEALTHY != outcome, section
