"""Every build has its ground truth and its line in docs/lab.md, and both say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from chaos.lab.sim.builds import BUILDS

ROOT = Path(__file__).parent.parent.parent
TRUTH = yaml.safe_load((ROOT / "bench" / "ground_truth.yaml").read_text())
TABLE = {
    line.split("`")[1]: line
    for line in (ROOT / "docs" / "lab.md").read_text().partition("## The builds")[2].splitlines()
    if line.startswith("| `")
}


def told(entry: dict) -> str:
    """An entry as the table tells it."""
    given = {**entry.get("set", {}), **entry.get("with", {})}
    brackets = f" ({', '.join(f'{key}={value}' for key, value in given.items())})" if given else ""
    side = f", {entry['side']}" if entry["side"] else ""
    return f"`{entry['scenario']}`{brackets}: {' or '.join(entry['outcome'])}{side}"


@pytest.mark.parametrize("build", BUILDS)
def test_a_build_is_told_of_and_its_truth_is_known(build):
    mine = [entry for entry in TRUTH if entry["build"] == build]
    assert mine
    assert BUILDS[build].about in TABLE[build]
    assert "<br>".join(told(entry) for entry in mine) == TABLE[build].rpartition(" | ")[2].removesuffix(" |")


def test_the_table_has_no_build_that_there_is_not():
    assert set(BUILDS) == set(TABLE)


def test_what_looks_sick_and_is_healthy_is_never_called_anything_else():
    calm = [name for name, build in BUILDS.items() if build.about.startswith("healthy: ")]
    known = {"slow-prefill", "cold-start", "stale-gauge", "late-drain", "noisy-log", "freed-by-next-batch"}
    assert {*known, "load-count-drifts"} == set(calm)
    assert {("healthy",)} == {tuple(entry["outcome"]) for entry in TRUTH if entry["build"] in calm}
