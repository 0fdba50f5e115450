"""The incident and its remedy over SSH: the same outcomes as on the local lab, in each way to the engines."""

from __future__ import annotations

import pytest
from laptops import Laptop

pytestmark = pytest.mark.e2e


def test_the_fixed_release_is_healthy_through_a_tunnel(healthy_bed, tmp_path) -> None:
    ran = Laptop(healthy_bed, tmp_path / "reports").run("abort-cascade", "--with", "cycles.count=1")
    assert (0, "healthy") == (ran.code, ran.verdict["outcome"]), ran.output
    (wave,) = ran.verdict["waves"]
    assert "yes" == wave["landed"]
    assert wave["server_aborts"] >= 20
    assert {"router", "prefill-0", "decode-0"} <= {
        name for event in ran.of("clock.measured") for name in event["of"].split(", ")
    }


def test_the_incident_is_wedged_by_agents_on_the_routers_host(broken_bed, tmp_path) -> None:
    ran = Laptop(broken_bed, tmp_path / "reports").run("abort-cascade", via="remote")
    verdict = ran.verdict
    assert (1, "wedged") == (ran.code, verdict["outcome"]), ran.output
    wedge = verdict["wedge"]
    assert (True, True, "prefill") == (wedge["total"], wedge["silent"], wedge["side"])
    assert ("sgl-project/sglang#30352", "0.5.16") == (
        verdict["causes"][0]["upstream"],
        verdict["causes"][0]["fixed_in"],
    )
