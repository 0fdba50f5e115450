"""The command line on the laptop of a test bed, and what it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ran import Ran

if TYPE_CHECKING:
    from testbed.bed import Bed

SHORT = Path(__file__).parent / "short.yaml"
COMING_BACK_S = 60.0
"""What the harness lets go of by itself: its agents drain, its outposts notice that they are alone."""


class Laptop:
    """The command line on the laptop of a bed."""

    def __init__(self, bed: Bed, reports: Path) -> None:
        self.bed = bed
        self.reports = reports
        self._output = reports.parent / f"{reports.name}.out"

    def start(self, *words: str) -> subprocess.Popen:
        with self._output.open("wb") as out:
            return self.bed.popen_laptop(
                [sys.executable, "-m", "chaos", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "COLUMNS": "100", "PYTHONWARNINGS": "default"},
            )

    def start_run(self, scenario: object, *words: str, via: str = "tunnel") -> subprocess.Popen:
        target = str(self.bed.target(via))
        return self.start("run", str(scenario), "--target", target, "--reports", str(self.reports), *words)

    def finish(self, process: subprocess.Popen, *, within: float = 280) -> Ran:
        try:
            code = process.wait(within)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            pytest.fail(f"pdchaos did not end within {within} s:\n{self.output()}")
        ran = Ran(code, self.output(), self.reports)
        assert "Traceback" not in ran.output
        assert "Warning" not in ran.output
        return ran

    def run(self, scenario: object, *words: str, via: str = "tunnel") -> Ran:
        """`pdchaos run` to its end; nothing of it is left anywhere."""
        ran = self.finish(self.start_run(scenario, *words, via=via))
        assert {} == self.leftovers(within=0.0)
        return ran

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def await_output(self, text: str, process: subprocess.Popen, within: float = 90) -> None:
        deadline = time.monotonic() + within
        while text not in self.output():
            assert process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)

    def leftovers(self, *, within: float = COMING_BACK_S) -> dict:
        """What is too much on any host after so many seconds."""
        deadline = time.monotonic() + within
        while (left := self.bed.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left
