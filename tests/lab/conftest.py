"""Labs for tests: started as users start them, with clocks short enough to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lab_client import RUN_ID, Lab

from chaos.lab.provider import parse_lab, start_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def lab(tmp_path) -> Iterator[Callable[..., Lab]]:
    """Starts labs, and stops them after the test."""
    running, opened = [], []

    def start(build: str = "healthy", **options: object) -> Lab:
        spec = parse_lab(f"sim@{build}", {"time_scale": "0.02", **{key: str(value) for key, value in options.items()}})
        running.append(start_lab(spec, tmp_path / f"lab-{len(running)}", lambda _: None))
        opened.append(Lab(running[-1]))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
    for each in running:
        assert [] == each.stop()
        logs = [path.read_text() for path in each.folder.glob("*.log")]
        assert not any(each.spec.build in log for log in logs if each.spec.build != "healthy")


@pytest.fixture(scope="session")
def calm(tmp_path_factory) -> Iterator[Lab]:
    """One healthy lab for tests that leave it as they found it, except for its counters."""
    spec = parse_lab("sim", {"time_scale": "0.02", "step_ms": "5", "context_len": "20000"})
    with start_lab(spec, tmp_path_factory.mktemp("calm"), lambda _: None, run_id=RUN_ID) as started:
        opened = Lab(started)
        yield opened
        opened.close()
