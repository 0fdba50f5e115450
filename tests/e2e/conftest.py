"""Runs the real command against real labs and looks for what it left behind."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
from command import Command

from chaos.lab import keeper

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from ran import Ran


class Pdchaos(Command):
    """The command here; everything it starts carries a mark in its environment."""

    def __init__(self, reports: Path) -> None:
        self.mark = f"{os.getpid()}-{reports.name}"
        super().__init__(reports, {"PDCHAOS_TEST": self.mark})

    def start_run(self, *words: str) -> subprocess.Popen:
        """Start `pdchaos run`."""
        return self.start("run", *words, "--reports", str(self.reports))

    def run(self, *words: str) -> Ran:
        """`pdchaos run` to its end; nothing it started is left, and it said nothing it should not have."""
        ran = self.finish(self.start_run(*words))
        assert [] == self.leftovers()
        ran.complains_of_nothing()
        return ran

    def leftovers(self, within: float = 0.0) -> list[str]:
        """Command lines of processes with our mark that still run after `within` seconds."""
        deadline = time.monotonic() + within
        while True:
            left = [" ".join(process.cmdline()) for process in _marked(self.mark)]
            if not left or time.monotonic() >= deadline:
                return left
            time.sleep(0.1)


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("PDCHAOS_TEST") == mark:
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


@pytest.fixture
def pdchaos(tmp_path: Path) -> Iterator[Pdchaos]:
    command = Pdchaos(tmp_path / "reports")
    yield command
    for process in _marked(command.mark):  # only after a failure
        process.kill()


@dataclass
class KeptLab:
    """A lab that outlives runs."""

    target: Path
    router: str
    pids: dict[str, int]

    def serves(self) -> bool:
        """Whether a fresh request completes through the router."""
        body = {"text": f"still there? {time.monotonic_ns()}", "sampling_params": {"max_new_tokens": 4}}
        try:
            return httpx.post(f"{self.router}/generate", json=body, timeout=10, trust_env=False).status_code == 200
        except httpx.TimeoutException:
            return False


@pytest.fixture
def kept_lab(tmp_path: Path) -> Iterator:
    """Brings labs up: `kept_lab("sim@BUILD", **options)`."""
    folders = []

    def up(name: str, **options: str) -> KeptLab:
        folder = tmp_path / f"lab-{len(folders)}"
        folders.append(folder)
        status = keeper.up(name, options, folder, lambda _: None, ttl_s=600)
        target = Path(status.target)
        from chaos import library

        spec = library.load_target(status.target).value
        pids = {server.id: int(Path(server.spec.pidfile).read_text()) for server in spec.servers}
        return KeptLab(target, spec.router.url, pids)

    yield up
    for folder in folders:
        keeper.down(folder)
