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

from chaos.lab.kinds import RUN_ID_VARIABLE
from chaos.lab.provider import parse_lab, start_lab
from chaos.model.errors import LabError

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

RUN_ID = "real-sglang-lab"


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


def ours() -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(RUN_ID_VARIABLE) == RUN_ID:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


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
    lab = start_lab(parse_lab(f"sglang@{version}", {}), tmp_path, print, run_id=RUN_ID)
    try:
        target = lab.target
        assert 200 == generate(target.router.url)
        before = lab.pids
        os.kill(before[2], signal.SIGKILL)
        lab.restart("decode-0")
        assert before[:2] == lab.pids[:2]
        assert before[2] != lab.pids[2] == int(Path(target.decode[0].pidfile).read_text())
        assert serves_within(target.router.url, 180)
        assert len(ours()) >= 7  # three processes each, and the router
    finally:
        assert [] == lab.stop()
    assert [] == ours()


def test_a_node_that_dies_while_starting_is_an_error_with_its_log_and_takes_the_others_along(version, tmp_path):
    def kill_decode(line: str) -> None:
        if line.startswith("decode-0 started, pid "):
            os.kill(int(line.rpartition(" ")[2]), signal.SIGKILL)

    (tmp_path / "decode-0.log").write_text("its last words\n")
    with pytest.raises(LabError, match=r"decode-0 died \(signal 9\)\n(?s:.*)its last words"):
        start_lab(parse_lab(f"sglang@{version}", {}), tmp_path, kill_decode, run_id=RUN_ID)
    assert [] == ours()
