"""The eight cases as folders that a test may change."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from incidents import CASES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def case(tmp_path: Path):
    """Copy a case's folder, by the number it begins with, under a name that says nothing."""

    def copy(number: str) -> Path:
        (found,) = CASES.glob(f"{number}-*")
        target = tmp_path / f"folder-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(found, target, ignore=shutil.ignore_patterns("expected.yaml"))
        return target

    return copy
