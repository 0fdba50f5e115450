"""The incident on unmodified releases, and its absence: pdchaos against real SGLang, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from sglang_here import installer_with

from chaos.lab.real.sglang.lab import check_mooncake
from chaos.model.errors import LabError

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

ABORT_BUG = "sgl-project/sglang#30352"


def run(tmp_path, scenario: str, version: str, *options: str):
    """(exit code, verdict) of a run."""
    installer_with(version)
    command = [sys.executable, "-m", "chaos", "run", scenario, "--target", f"lab:sglang@{version}"]
    told = subprocess.run(
        [*command, "--reports", str(tmp_path), "--plain", *options],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    (verdict,) = tmp_path.glob("*/verdict.json")
    return told.returncode, json.loads(verdict.read_text()), verdict.parent


def answers(verdict) -> dict[str, str]:
    return {finding["id"]: finding["answer"] for finding in verdict["findings"]}


def test_0_5_14_wedges_silently_when_an_agent_dies_and_the_cause_is_named(tmp_path):
    code, verdict, folder = run(tmp_path, "abort-cascade", "0.5.14")
    assert (1, "wedged", "clean") == (code, verdict["outcome"], verdict["cleanup"]), verdict["headline"]
    wedge = verdict["wedge"]
    assert ("prefill", True, True) == (wedge["side"], wedge["silent"], wedge["confirmed"])
    assert (ABORT_BUG, "0.5.16") in [(cause["upstream"], cause["fixed_in"]) for cause in verdict["causes"]]
    assert list((folder / "forensics").rglob("*")), "nothing was saved from inside the engine"


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
def test_later_releases_survive_the_same_attack_and_say_that_they_met_it(tmp_path, version):
    code, verdict, _ = run(tmp_path, "abort-cascade", version)
    assert (0, "healthy", "clean") == (code, verdict["outcome"], verdict["cleanup"]), verdict["headline"]
    assert all(wave["server_aborts"] >= 1 for wave in verdict["waves"])


def test_0_5_14_survives_it_with_mooncake(tmp_path):
    try:
        check_mooncake()
    except LabError as error:
        pytest.skip(f"{error.message} ({error.hint})")
    code, verdict, _ = run(tmp_path, "abort-cascade", "0.5.14", "--set", "transfer=mooncake")
    assert (0, "healthy") == (code, verdict["outcome"]), verdict["headline"]


def test_one_foreign_frame_wedges_the_newest_release(tmp_path):
    code, verdict, _ = run(tmp_path, "foreign-frame", "0.5.23")
    assert (1, "wedged") == (code, verdict["outcome"]), verdict["headline"]
    assert "prefill" == verdict["wedge"]["side"]


def test_a_decode_with_another_transfer_backend_wedges_the_newest_release(tmp_path):
    try:
        check_mooncake()
    except LabError as error:
        pytest.skip(f"{error.message} ({error.hint})")
    code, verdict, _ = run(tmp_path, "backend-mismatch", "0.5.23")
    assert (1, "wedged", "clean") == (code, verdict["outcome"], verdict["cleanup"]), verdict["headline"]
    assert "prefill" == verdict["wedge"]["side"]
    assert {""} == {cause["upstream"] for cause in verdict["causes"]}, "no bug of a peer made it"
