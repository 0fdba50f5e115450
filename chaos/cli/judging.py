"""`pdchaos judge`: the same journal, the rules of this version."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from chaos.cli.outputs import judged, listened_to, show, verdict_json, write_reports
from chaos.journal import RunFolder

if TYPE_CHECKING:
    from pathlib import Path


def judge_again(path: Path, *, as_json: bool, write: bool) -> int:
    """Judge a run folder again; returns the exit code the run itself would have had."""
    folder = RunFolder.open(path)
    journal, verdict = judged(folder)
    if write:
        write_reports(folder, journal, verdict, "")
    if as_json:
        with listened_to():
            sys.stdout.buffer.write(verdict_json(verdict))
    else:
        show(verdict, folder)
    return int(verdict.exit_code)
