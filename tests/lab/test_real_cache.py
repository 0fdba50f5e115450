"""Installed engines: parts that are whole or absent, two installations at once, a lab that runs meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest
from lab_client import eventually

from chaos.lab.real import cache
from chaos.lab.real.cache import STAMP, Part
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path


def fill(folder: Path) -> None:
    (folder / "engine.py").write_text("x = 1\n")


@pytest.fixture
def part(tmp_path):
    return Part(tmp_path / "deps", "pins 1")


@pytest.fixture
def told():
    return []


def test_a_part_is_complete_once_it_was_built_and_is_not_built_again(part, told):
    assert not part.complete
    part.build(fill, told.append)
    assert part.complete
    part.build(lambda _: pytest.fail("built again"), told.append)
    assert "deps: is there" == told[-1]
    assert cache.stamped_size(part.folder) >= 4096


def test_an_interrupted_build_is_not_complete_and_what_it_left_is_replaced(part, told):
    def interrupted(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        part.build(interrupted, told.append)
    assert not part.complete
    part.build(fill, told.append)
    assert {"engine.py", STAMP} == {path.name for path in part.folder.iterdir()}


def test_a_part_of_other_pins_is_built_anew(part, told):
    part.build(fill, told.append)
    newer = Part(part.folder, "pins 2")
    assert not newer.complete
    newer.build(fill, told.append)
    assert (True, False) == (newer.complete, part.complete)


@pytest.mark.parametrize("stamp", ["", "[]", '{"made_of": 3}'])
def test_a_stamp_that_cannot_be_read_is_no_stamp(part, told, stamp):
    part.build(fill, told.append)
    (part.folder / STAMP).write_text(stamp)
    assert not part.complete
    assert cache.stamped_size(part.folder) is None


def test_a_part_in_use_is_not_removed_and_stays_whole(part, told):
    part.build(fill, told.append)
    with cache.use(part.folder), cache.use(part.folder):
        with pytest.raises(LabError, match="is in use by a lab that runs"):
            cache.discard(part.folder)
        assert part.complete
    cache.discard(part.folder)
    assert not part.folder.exists()
    cache.discard(part.folder)


def test_two_installations_wait_for_each_other_and_say_so(tmp_path, told):
    order = []
    waits = threading.Event()

    def second() -> None:
        def tell(line: str) -> None:
            told.append(line)
            waits.set()

        with cache.installing(tmp_path, tell):
            order.append("second")

    with cache.installing(tmp_path, told.append):
        other = threading.Thread(target=second)
        other.start()
        assert waits.wait(10)
        order.append("first")
    other.join(10)
    assert ["first", "second"] == order
    assert [f"another pdchaos installs into {tmp_path}; waiting for it"] == told


def test_a_full_disk_is_said_before_anything_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=1024**3))
    cache.check_disk(tmp_path / "new", 1024**3)
    with pytest.raises(LabError, match=r"has 1.0 GiB of free space, 6.0 GiB are needed") as full:
        cache.check_disk(tmp_path / "new", 6 * 1024**3)
    assert "PDCHAOS_LABS" in full.value.hint


def test_another_platform_is_refused(monkeypatch):
    monkeypatch.setattr(cache.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(cache.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(cache.platform, "libc_ver", lambda: ("", ""))
    with pytest.raises(LabError, match="this machine is Darwin arm64"):
        cache.check_platform("SGLang")


def test_the_cache_folder_is_where_the_variable_says_or_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("PDCHAOS_LABS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "pdchaos" / "labs" == cache.cache_root()
    monkeypatch.setenv("PDCHAOS_LABS", str(tmp_path / "labs"))
    assert tmp_path / "labs" == cache.cache_root()


def test_a_failing_program_is_a_lab_error_with_the_end_of_what_it_said(told):
    script = "print('Downloading torch-2.13.0.whl (190.1 MB)'); print('Downloading six.whl (11 kB)'); exit('no match')"
    with pytest.raises(LabError, match=r"deps failed \(exit code 1\)\n(?s:.*)no match") as failed:
        cache.run([sys.executable, "-c", script], "deps", told.append)
    assert ["deps …", "  torch-2.13.0.whl 190.1 MB"] == told
    assert "run the command again: what is complete is kept" == failed.value.hint


def test_what_leads_another_python_astray_is_kept_from_installations(monkeypatch, told):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    script = "import os, json; print(json.dumps([os.environ.get(n) for n in ('PYTHONPATH', 'X')])); exit(1)"
    with pytest.raises(LabError) as failed:
        cache.run([sys.executable, "-c", script], "asking", told.append, {"X": "given"})
    assert [None, "given"] == json.loads(failed.value.message.splitlines()[-1])


def test_no_program_of_an_installation_outlives_a_pdchaos_that_is_killed(tmp_path):
    child = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(600)"
    owner = f"import sys; from chaos.lab.real.cache import run; run([sys.executable, '-c', {child!r}], 'x', print)"
    with subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.DEVNULL) as process:
        eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith(" "), "it runs")
        process.kill()
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", "it is gone")
