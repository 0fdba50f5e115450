"""Dynamo for the tests: installed once; skipped where this machine cannot have it, unless PDCHAOS_REAL names it."""

from __future__ import annotations

import os
from functools import cache

import psutil
import pytest

from chaos.lab.kinds import RUN_ID_VARIABLE
from chaos.lab.real.dynamo.install import TRIED, DynamoInstaller
from chaos.lab.real.namespace import enclose
from chaos.model.errors import LabError

VERSION = TRIED[0]


@cache
def installer() -> DynamoInstaller:
    """The installer, once the version is there."""
    found = DynamoInstaller()
    try:
        with enclose():
            found.install(VERSION, print)
    except LabError as error:
        if "dynamo" in os.environ.get("PDCHAOS_REAL", "").split(","):
            raise
        pytest.skip(f"no Dynamo here: {error.message} ({error.hint})")
    return found


def marked(run_id: str) -> list[int]:
    """Processes of a lab, wherever they hang in the tree."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(RUN_ID_VARIABLE) == run_id:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
