"""The incident on real SGLang, over SSH: each server on a host of its own, the load on the router's host."""

from __future__ import annotations

import pytest
from beds import needs_bed, wedges
from sglang_here import installer_with

from testbed.bed import Bed

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800), needs_bed]


def test_0_5_14_wedges_over_ssh_with_the_load_on_a_host_and_the_cause_is_named(tmp_path):
    installer_with("0.5.14")
    with Bed.start(engine="sglang@0.5.14") as bed:
        said = wedges(bed, tmp_path, "abort-cascade", via="remote", timeout_s=900)
        wedge = said["wedge"]
        assert ("prefill", True, True) == (wedge["side"], wedge["silent"], wedge["confirmed"])
        assert ("sgl-project/sglang#30352", "0.5.16") in [(c["upstream"], c["fixed_in"]) for c in said["causes"]]
