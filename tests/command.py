"""The real command as a process of its own, what it says in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from ran import Ran

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Command:
    """Starts it, by `popen`, in a session of its own, so that signals reach it alone."""

    def __init__(
        self, reports: Path, environment: Mapping[str, str], popen: Callable[..., subprocess.Popen] = subprocess.Popen
    ) -> None:
        self.reports = reports
        self._environment = environment
        self._popen = popen
        self._output = reports.parent / f"{reports.name}.out"

    def start(self, *words: str, module: str = "chaos", cwd: Path | None = None) -> subprocess.Popen:
        """Start it, or somebody else's `module` in its place."""
        with self._output.open("wb") as out:
            return self._popen(
                [sys.executable, "-m", module, *words],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **self._environment, "COLUMNS": "100", "PYTHONWARNINGS": "default"},
            )

    def finish(self, process: subprocess.Popen, *, within: float = 280) -> Ran:
        """Wait for its end."""
        try:
            code = process.wait(within)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            pytest.fail(f"pdchaos did not end within {within} s:\n{self.output()}")
        return Ran(code, self.output(), self.reports)

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def await_output(self, text: str, process: subprocess.Popen, within: float = 90) -> None:
        """Wait until it has said something."""
        deadline = time.monotonic() + within
        while text not in self.output():
            assert process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)
