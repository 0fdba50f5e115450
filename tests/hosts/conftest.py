from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Iterator


PATIENCE_S = 20.0


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with Sshd(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No thread and no descriptor is left over."""

    def held() -> tuple[list[str], int]:
        names = sorted(thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio"))
        return names, sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = held()
    yield
    until = time.monotonic() + PATIENCE_S
    while held() != before and time.monotonic() < until:
        time.sleep(0.02)  # of a thread that was told to end
    assert before == held()
