"""Scratch folders go with their owner, and those of killed owners with the next one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from chaos.lab.real.scratch import scratch_folder, sweep


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def make_old(folder: Path) -> None:
    os.utime(folder, (1, 1))


def left_by_a_killed_owner(temporary: Path) -> Path:
    script = (
        "import os, signal, tempfile, sys\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "from chaos.lab.real.scratch import scratch_folder\n"
        "with scratch_folder() as folder:\n"
        "    print(folder, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    told = subprocess.run([sys.executable, "-c", script, str(temporary)], capture_output=True, text=True, check=False)
    return Path(told.stdout.strip())


def test_a_folder_is_there_while_it_is_used_and_gone_afterwards():
    with scratch_folder() as folder:
        (folder / "socket").write_text("")
        assert folder.is_dir()
    assert not folder.exists()


def test_what_a_killed_owner_left_goes_with_the_next_one(temporary):
    left = left_by_a_killed_owner(temporary)
    assert left.is_dir()
    make_old(left)
    with scratch_folder():
        assert not left.exists()


def test_a_folder_in_use_stays_however_old_it_is():
    with scratch_folder() as folder:
        make_old(folder)
        assert [] == sweep()
        assert folder.is_dir()


def test_a_folder_in_the_making_stays(temporary):
    left = left_by_a_killed_owner(temporary)
    assert [] == sweep()
    assert left.is_dir()
