"""What pdchaos says of real Dynamo, from the command line: the truth was found by hand before.

Two runs go on at a time: a Dynamo is small, and most of a run is waiting. Idle times and budgets are shortened where
nothing depends on them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from dynamo_here import VERSION, installer

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

SHORT = ("--with", "observe.idle=8s")
HASTY = (*SHORT, "--with", "expect.recover_within=20s")
RUNS = {
    "short freeze": ("freeze-worker", *SHORT, "--with", "timeline.freeze.for=5s"),
    "long freeze": ("freeze-worker", *HASTY),
    "long freeze of one of two": ("freeze-worker", *HASTY, "--set", "prefill=2", "--set", "decode=2"),
    "very long freeze with etcd": (
        *("freeze-worker", *HASTY, "--set", "discovery=etcd"),
        *("--with", "timeline.freeze.for=45s"),
    ),
    "abort waves": ("abort-waves", *SHORT),
}


@dataclass
class Ran:
    """A finished run."""

    code: int
    output: str
    verdict: dict


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All runs, two at a time, in the order in which the tests ask for them."""
    installer()

    def run(name: str) -> Ran:
        reports = tmp_path_factory.mktemp("reports", numbered=True)
        command = [sys.executable, "-m", "chaos", "run", "--target", f"lab:dynamo@{VERSION}", *RUNS[name]]
        told = subprocess.run(
            [*command, "--reports", str(reports), "--plain"], capture_output=True, text=True, timeout=600, check=False
        )
        (verdict,) = reports.glob("*/verdict.json")
        return Ran(told.returncode, told.stdout + told.stderr, json.loads(verdict.read_text()))

    wanted = [name for name in RUNS if "etcd" not in name or shutil.which("etcd")]
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(run, name) for name in wanted}


def result(runs: dict[str, Future[Ran]], name: str) -> Ran:
    ran = runs[name].result()
    assert "clean" == ran.verdict["cleanup"], ran.output
    assert "Traceback" not in ran.output
    return ran


def test_a_short_freeze_is_survived(runs):
    ran = result(runs, "short freeze")
    assert ran.verdict["outcome"] in ("healthy", "slow-recovery"), ran.verdict["headline"]
    assert all(wave["landed"] == "yes" for wave in ran.verdict["waves"])


def test_a_long_freeze_of_the_only_decode_is_a_silent_total_wedge(runs):
    ran = result(runs, "long freeze")
    assert (1, "wedged") == (ran.code, ran.verdict["outcome"]), ran.verdict["headline"]
    wedge = ran.verdict["wedge"]
    assert (True, True, True, "decode") == (wedge["total"], wedge["silent"], wedge["confirmed"], wedge["side"])
    assert "forgotten-by-discovery" == ran.verdict["causes"][0]["signature"]


def test_a_long_freeze_of_one_of_two_is_a_partial_wedge_although_every_canary_passes(runs):
    ran = result(runs, "long freeze of one of two")
    assert (1, "wedged") == (ran.code, ran.verdict["outcome"]), ran.verdict["headline"]
    (routed,) = ran.verdict["paths"]
    assert ("routed", "yes", 0, 0) == (routed["path"], routed["serves"], routed["failed"], routed["unfinished"])
    wedge = ran.verdict["wedge"]
    assert (False, True, True, "decode") == (wedge["total"], wedge["silent"], wedge["confirmed"], wedge["side"])
    assert 1 == len(wedge["nodes"])


def test_with_etcd_a_very_long_freeze_crashes_the_worker(runs):
    if "very long freeze with etcd" not in runs:
        pytest.skip("etcd is not installed (apt-get install etcd-server)")
    ran = result(runs, "very long freeze with etcd")
    assert (1, "crashed") == (ran.code, ran.verdict["outcome"]), ran.verdict["headline"]
    assert "lease-lost" in {cause["signature"] for cause in ran.verdict["causes"]}


def test_five_waves_of_eighty_dead_sessions_are_survived_and_every_abort_was_seen(runs):
    ran = result(runs, "abort waves")
    assert (0, "healthy") == (ran.code, ran.verdict["outcome"]), ran.verdict["headline"]
    waves = ran.verdict["waves"]
    assert [80] * 5 == [wave["sessions"] for wave in waves]
    # A busy frontend may not have read a request yet when its client dies.
    assert all(wave["server_aborts"] >= 64 for wave in waves), [wave["server_aborts"] for wave in waves]
