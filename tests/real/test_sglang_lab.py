"""A real SGLang pair as a lab: who listens, a node that is replaced, one that dies, and what is left afterwards."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from sglang_here import VERSIONS, installer_with

from chaos.lab.provider import parse_lab, start_lab
from chaos.model.errors import LabError

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def version():
    installed = [each for each in VERSIONS if _there(each)]
    if not installed:
        pytest.skip("no version of sglang is installed")
    return installed[0]


def _there(version: str) -> bool:
    try:
        installer_with(version)
    except pytest.skip.Exception:
        return False
    return True


def family(pids: list[int]) -> list[psutil.Process]:
    """The nodes' main processes and all below; by descent, for schedulers overwrite their environment with a title."""
    return [each for pid in pids for each in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))]


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def generate(url: str, timeout: float = 60) -> int:
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/generate", json.dumps(body).encode(), headers)  # noqa: S310, our own
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout) as answer:
        return answer.status


def serves_within(url: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if generate(url) == 200:
                return True
        except OSError:
            time.sleep(1)
    return False


def test_a_pair_serves_survives_the_replacement_of_decode_and_leaves_nothing(version, tmp_path):
    lab = start_lab(parse_lab(f"sglang@{version}", {}), tmp_path, print)
    try:
        target = lab.target
        assert 200 == generate(target.router.url)
        before = lab.pids
        os.kill(before[2], signal.SIGKILL)
        lab.restart("decode-0")
        assert before[:2] == lab.pids[:2]
        assert before[2] != lab.pids[2] == int(Path(target.decode[0].pidfile).read_text())
        assert serves_within(target.router.url, 180)
        members = family(lab.pids)
        assert len(members) >= 7  # three processes each, and the router
    finally:
        assert [] == lab.stop()
    assert [] == living(members)


def test_a_node_that_dies_while_starting_is_an_error_with_its_log_and_takes_the_others_along(version, tmp_path):
    pids = []

    def kill_decode(line: str) -> None:
        if " started, pid " in line:
            pids.append(int(line.rpartition(" ")[2]))
        if line.startswith("decode-0 started"):
            os.kill(pids[-1], signal.SIGKILL)

    (tmp_path / "decode-0.log").write_text("its last words\n")
    with pytest.raises(LabError, match=r"decode-0 died \(signal 9\)\n(?s:.*)its last words"):
        start_lab(parse_lab(f"sglang@{version}", {}), tmp_path, kill_decode)
    assert 2 == len(pids)
    assert [] == [pid for pid in pids if psutil.pid_exists(pid)]
