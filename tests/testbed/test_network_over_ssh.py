"""Faults of the network over SSH, on hosts whose nodes really are apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from testbed.bed import Bed
from testbed.needs import missing
from testbed.plan import LAPTOP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(missing()), reason=f"no test bed here: {missing()}")]
BUILD = "session-blacklist"  # prefill writes a decode off for good once a transfer to it has failed
RUN_S = 280.0
LEFT_S = 60.0


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed.start(build=BUILD, decode=2, options={"transfer_ms": "500", "slots": "40"}) as started:
        yield started


def command(bed: Bed, target: Path, reports: Path, scenario: str, *overrides: str) -> list[str]:
    words = [sys.executable, "-m", "chaos", "run", scenario, "-t", str(target), "--reports", str(reports), "--plain"]
    for override in overrides:
        words += ["--with", override]
    return bed.command(LAPTOP, words)


def run(*args) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args), capture_output=True, text=True, check=False, timeout=RUN_S, stdin=subprocess.DEVNULL
    )


def left_behind(bed: Bed) -> dict[str, dict[str, list[str]]]:
    """What of a fault is on hosts that was not there before, once it has had time to go."""
    deadline = time.monotonic() + LEFT_S
    while True:
        found = {
            host: {kind: what for kind, what in left.items() if what and kind != "processes"}
            for host, left in bed.leftovers().items()
            if host != LAPTOP
        }
        if not any(found.values()) or time.monotonic() > deadline:
            return {host: left for host, left in found.items() if left}
        time.sleep(0.2)


def test_a_decode_that_was_cut_off_from_prefill_for_a_while_is_told_to_be_wedged_and_nobody_else_is(bed, tmp_path):
    one = ("timeline.cut.for=60s", "timeline.cut.partition.where.mode=one", "load.users.sessions=20")
    done = run(bed, bed.target("tunnel"), tmp_path, "partition-prefill-decode", *one)
    assert 1 == done.returncode, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    verdict = json.loads((folder / "verdict.json").read_text())
    assert ("wedged", "clean", "yes") == (verdict["outcome"], verdict["cleanup"], verdict["waves"][0]["landed"])
    assert "prefill-0>decode-0" in verdict["wedge"]["paths"]
    assert "prefill-0>decode-1" not in verdict["wedge"]["paths"]
    events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    steps = {event["stage"]: event for event in events if event["type"] == "fault.step"}
    assert {"planned", "applied", "verified", "reverted", "revert-verified"} == set(steps)
    assert all(step["ok"] for step in steps.values())
    assert (["decode-0"], ["prefill-0"]) == (steps["applied"]["cut_off"], steps["applied"]["cut_from"])
    assert (
        "datagrams in 0 of 20, datagrams out 0 of 20, connections out silent, in silent"
        in (steps["verified"]["measured"]["decode-0 / prefill-0"])
    )
    assert "ssh-in" in steps["reverted"]["measured"]["decode-0"]
    lost = [event for event in events if event["type"] == "evidence.lost"]
    assert not [event for event in lost if event["src"] != "probe:ourselves"]  # a busy machine of ours is no loss
    assert {} == left_behind(bed)


def test_what_this_kernel_cannot_do_is_refused_before_anything_is_touched(bed, tmp_path):
    if not subprocess.run(
        ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
        capture_output=True,
        check=False,
    ).returncode:
        pytest.skip("this kernel has netem")
    scenario = tmp_path / "late.yaml"
    late = {"where": {"role": "prefill"}, "to": {"role": "decode"}, "delay": "100ms"}
    told = {"version": 1, "name": "late", "load": [{"name": "users"}], "timeline": [{"id": "late", "at": "1s"}]}
    told["timeline"][0]["delay"] = late
    scenario.write_text(yaml.safe_dump(told))
    done = run(bed, bed.target("tunnel"), tmp_path / "reports", str(scenario))
    assert 5 == done.returncode
    assert "late: a delay cannot be made on the host of prefill-0: this kernel cannot do it: netem" in done.stderr
    assert {} == left_behind(bed)


def test_hosts_heal_themselves_when_pdchaos_is_killed_while_a_partition_stands(bed, tmp_path):
    bed.restart_node("prefill-0")  # it may have written decode-0 off
    running = subprocess.Popen(
        command(bed, bed.target("tunnel"), tmp_path, "partition-prefill-decode", "timeline.cut.at=0s"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert running.stdout
        said = []
        for line in running.stdout:
            said.append(line)
            if "cut applied" in line:
                break
        assert any(left.nft for left in bed.leftovers().values()), said
        os.killpg(running.pid, signal.SIGKILL)
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
    assert {} == left_behind(bed)
