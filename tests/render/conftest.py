"""Snapshots of what people read; `PDCHAOS_UPDATE_SNAPSHOTS=1 pytest tests/render` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture
def snapshot() -> Callable[[str, str], None]:
    """Compare a text with the stored one of that name; a missing one is a failure unless updating was asked for."""

    def check(name: str, text: str) -> None:
        path = SNAPSHOTS / name
        if os.environ.get("PDCHAOS_UPDATE_SNAPSHOTS") == "1":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        if not path.exists():
            pytest.fail(f"no snapshot {name}: run once with PDCHAOS_UPDATE_SNAPSHOTS=1 and read what it says")
        assert path.read_text(encoding="utf-8") == text

    return check
