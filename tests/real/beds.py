"""pdchaos from the laptop of a test bed that runs a real engine; what came of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.needs import missing
from testbed.plan import LAPTOP

if TYPE_CHECKING:
    from testbed.bed import Bed

needs_bed = pytest.mark.skipif(bool(missing()), reason=f"no test bed here: {missing()}")


def wedges(bed: Bed, reports: Path, scenario: str, *options: str, via: str, timeout_s: float) -> dict:
    """The verdict of a run over nothing but SSH, which called it wedged and left nothing behind."""
    bed.only_ssh()
    pdchaos = [str(Path(sys.executable).parent / "pdchaos"), "run", scenario, "-t", str(bed.target(via))]
    told = bed.run_on(
        LAPTOP, [*pdchaos, "--reports", str(reports), "--plain", *options], timeout_s=timeout_s, check=False
    )
    verdicts = list(reports.glob("*/verdict.json"))
    assert len(verdicts) == 1, told.stdout + told.stderr
    said = json.loads(verdicts[0].read_text())
    assert (1, "wedged", "clean") == (told.returncode, said["outcome"], said["cleanup"]), said["headline"]
    assert {} == bed.leftovers()
    return said
