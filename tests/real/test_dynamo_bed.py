"""Real Dynamo on the hosts of the test bed: workers find each other across hosts, are restarted and frozen over SSH."""

from __future__ import annotations

import subprocess
import sys

import pytest
from beds import needs_bed, wedges
from dynamo_here import VERSION, installer

from testbed.bed import Bed
from testbed.plan import LAPTOP

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), needs_bed]
CHAT = """
import json, sys, time, urllib.request
body = {"model": "pdchaos-tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
asked = urllib.request.Request(sys.argv[1], json.dumps(body).encode(), {"content-type": "application/json"})
until = time.monotonic() + 60
while True:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=30) as reply:
            print(json.load(reply)["usage"]["completion_tokens"])
            break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.2)
"""


def test_workers_on_hosts_of_their_own_serve_and_one_that_was_killed_serves_again_after_a_restart_over_ssh():
    installer()
    with Bed.start(engine=f"dynamo@{VERSION}") as bed:
        chat = [sys.executable, "-c", CHAT, f"http://{bed.address('router')}:30000/v1/chat/completions"]
        assert "4\n" == bed.run_on(LAPTOP, chat).stdout
        assert {} == bed.leftovers()

        before = bed.pid("decode-0")
        bed.run_on("decode-0", ["kill", "-KILL", str(before)])
        subprocess.run(
            bed.command(LAPTOP, bed.ssh("decode-0", "pd-node", "restart")), check=True, timeout=120, capture_output=True
        )
        assert before != bed.pid("decode-0")
        assert "4\n" == bed.run_on(LAPTOP, chat, timeout_s=120).stdout
        assert {} == bed.leftovers()


def test_a_worker_that_was_frozen_over_ssh_for_longer_than_its_lease_is_never_used_again(tmp_path):
    installer()
    shorter = ["--with", "expect.recover_within=30s", "--with", "observe.at_most=40s", "--with", "observe.idle=5s"]
    with Bed.start(engine=f"dynamo@{VERSION}") as bed:
        said = wedges(bed, tmp_path, "freeze-worker", *shorter, via="tunnel", timeout_s=280)
        assert "decode" == said["wedge"]["side"]
