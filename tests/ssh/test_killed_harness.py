"""pdchaos is SIGKILLed while it breaks hosts: they heal themselves, and the next run begins without help."""

from __future__ import annotations

import pytest

from bench.kill_the_harness import FAULTS, kill_once

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("fault", FAULTS)
def test_what_stood_when_pdchaos_was_killed_is_gone_from_every_host(healthy_bed, tmp_path, fault) -> None:
    kill = kill_once(healthy_bed, fault, tmp_path / "reports", after_s=None)
    assert ("", True) == (kill.wrong, kill.stood), (tmp_path / "output.txt").read_text()
    assert kill.judged is not None
