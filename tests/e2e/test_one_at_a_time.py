"""Two runs never break one deployment together: of two that begin at once one wins, and a thief is heard of."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from conftest import Pdchaos

from chaos import library
from chaos.engine.hosts import Hosts
from chaos.engine.hosts.lock import lock_keys

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

SCENARIO = """\
version: 1
name: look
load: [{name: one, sessions: 1, prompt_tokens: 20, max_tokens: 4}]
observe: {settle: 1s, idle: 3000s, baseline: 1s}
"""


def test_of_two_runs_that_begin_together_one_wins_and_a_thief_needs_a_reason(kept_lab, pdchaos, tmp_path: Path) -> None:
    lab = kept_lab("sim", time_scale="0.05")
    scenario = tmp_path / "look.yaml"
    scenario.write_text(SCENARIO)
    words = (str(scenario), "--target", str(lab.target), "--plain")
    both = [Pdchaos(tmp_path / f"reports-{n}") for n in range(2)]
    running = [one.start_run(*words) for one in both]
    try:
        # The loser ends at once; the winner would be idle for minutes.
        while all(process.poll() is None for process in running):
            time.sleep(0.05)
        loser = next(n for n, process in enumerate(running) if process.poll() is not None)
        refused = both[loser].finish(running[loser])
        assert 5 == refused.code, refused.output
        assert "is in use by run " in refused.output
        assert "take the deployment from it with --steal-lock REASON" in refused.output
        assert not refused.reports.exists() or [] == list(refused.reports.iterdir())
        winner = 1 - loser
        both[winner].await_output("phase     idle", running[winner], within=120)

        assert 2 == pdchaos.run(*words, "--steal-lock", " ").code
        thief = pdchaos.run(*words, "--with", "observe.idle=1s", "--steal-lock", "it only idles")
        assert 0 == thief.code, thief.output
        (gave_way,) = thief.events[0]["gave_way"]
        assert gave_way.startswith("the lock was stolen from run ")
        assert gave_way.endswith(": it only idles")
        assert thief.output.count(gave_way) > 1, "said at once, and part of the story"

        robbed = both[winner].finish(running[winner])
        assert 130 == robbed.code, robbed.output
        assert f"run {thief.events[0]['run_id']} has stolen the lock of" in robbed.output
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
    target = library.load_target(str(lab.target)).value
    ((host, keys),) = lock_keys(target, Hosts.here(target))
    assert [] == host.call_now("lock.seen", keys=keys)
