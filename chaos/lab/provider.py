"""Labs for the rest of pdchaos: asked for by name, outlined, started; the kinds behind them are in `catalogue`."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from chaos.lab.catalogue import catalogue, parse_lab
from chaos.lab.kinds import RUN_ID_VARIABLE, LabInfo, LabSpec, RunningLab, log_tail
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chaos.model.target import Target

__all__ = [
    "RUN_ID_VARIABLE",
    "LabInfo",
    "LabSpec",
    "RunningLab",
    "catalogue",
    "log_tail",
    "outline_lab",
    "parse_lab",
    "start_lab",
]


def outline_lab(spec: LabSpec) -> Target:
    """The lab as a target before it is started: every address is a placeholder."""
    return spec.outline()


def start_lab(spec: LabSpec, folder: Path, progress: Callable[[str], None], *, run_id: str = "") -> RunningLab:
    """Start every process of a lab and return once all serve; LabError carries the tail of a failed one's log."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"folder {folder} cannot be used: {error.strerror}") from error
    return spec.start(folder, progress, run_id=run_id or os.environ.get(RUN_ID_VARIABLE, "") or uuid.uuid4().hex)
