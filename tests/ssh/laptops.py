"""The command line on the laptop of a test bed, and what it left behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from command import Command

if TYPE_CHECKING:
    import subprocess

    from ran import Ran

    from testbed.bed import Bed

SHORT = Path(__file__).parent / "short.yaml"
COMING_BACK_S = 60.0
"""What the harness lets go of by itself: its agents drain, its outposts notice that they are alone."""


class Laptop(Command):
    """The command line on the laptop of a bed."""

    def __init__(self, bed: Bed, reports: Path) -> None:
        super().__init__(reports, {}, bed.popen_laptop)
        self.bed = bed

    def start_run(self, scenario: object, *words: str, via: str = "tunnel") -> subprocess.Popen:
        target = str(self.bed.target(via))
        return self.start("run", str(scenario), "--target", target, "--reports", str(self.reports), *words)

    def finish(self, process: subprocess.Popen, *, within: float = 280) -> Ran:
        """Wait for its end; it said nothing it should not have."""
        ran = super().finish(process, within=within)
        ran.complains_of_nothing()
        return ran

    def run(self, scenario: object, *words: str, via: str = "tunnel") -> Ran:
        """`pdchaos run` to its end; nothing of it is left anywhere."""
        ran = self.finish(self.start_run(scenario, *words, via=via))
        assert {} == self.leftovers(within=0.0)
        return ran

    def leftovers(self, *, within: float = COMING_BACK_S) -> dict:
        """What is too much on any host after so many seconds."""
        deadline = time.monotonic() + within
        while (left := self.bed.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left
