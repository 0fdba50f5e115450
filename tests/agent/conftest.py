from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import scripted

from chaos.agent.build import build_pyz
from chaos.agent.http1 import PARSERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(params=list(PARSERS))
def parser(request: pytest.FixtureRequest) -> str:
    """Each HTTP parser that is installed."""
    return request.param


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent as one file."""
    return build_pyz(tmp_path_factory.mktemp("pyz") / "agent.pyz")


@pytest.fixture(params=["source", "bare"])
def start(request: pytest.FixtureRequest, pyz: Path, tmp_path: Path) -> Callable[..., scripted.Process]:
    """Start an agent: from source with the fast libraries, and as one file that finds nothing but itself."""
    command = scripted.SOURCE if request.param == "source" else [sys.executable, "-S", str(pyz)]

    def make(url: str, **values: object) -> scripted.Process:
        config = {
            "group": "g",
            "run": "t",
            "base_url": url,
            "api": "chat",
            "phase_file": str(tmp_path / "phases"),
            "phase_slots": 16,
            **values,
        }
        return scripted.Process(command, config)

    return make
