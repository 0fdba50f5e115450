"""The incident on real SGLang, over SSH: each server on a host of its own, the load on the router's host."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from sglang_here import installer_with

from testbed.bed import Bed
from testbed.needs import missing
from testbed.plan import LAPTOP

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing()), reason=f"no test bed here: {missing()}"),
]


def test_0_5_14_wedges_over_ssh_with_the_load_on_a_host_and_the_cause_is_named(tmp_path):
    installer_with("0.5.14")
    with Bed.start(engine="sglang@0.5.14") as bed:
        bed.only_ssh()
        pdchaos = [
            str(Path(sys.executable).parent / "pdchaos"),
            "run",
            "abort-cascade",
            "-t",
            str(bed.target("remote")),
        ]
        told = bed.run_on(LAPTOP, [*pdchaos, "--reports", str(tmp_path), "--plain"], timeout_s=900, check=False)
        verdicts = list(tmp_path.glob("*/verdict.json"))
        assert len(verdicts) == 1, told.stdout + told.stderr
        said = json.loads(verdicts[0].read_text())
        assert (1, "wedged", "clean") == (told.returncode, said["outcome"], said["cleanup"]), said["headline"]
        wedge = said["wedge"]
        assert ("prefill", True, True) == (wedge["side"], wedge["silent"], wedge["confirmed"])
        assert ("sgl-project/sglang#30352", "0.5.16") in [(c["upstream"], c["fixed_in"]) for c in said["causes"]]
        assert {} == bed.leftovers()
