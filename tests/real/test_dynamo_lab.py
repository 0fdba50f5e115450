"""Real Dynamo as a lab: who listens, a node that is replaced, one that dies, and what is left afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from dynamo_here import VERSION, installer, marked

from chaos.lab.provider import parse_lab, start_lab
from chaos.lab.real.namespace import PREFIX
from chaos.model.errors import LabError

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(scope="module", autouse=True)
def installed():
    installer()


def lab(folder, run_id: str, progress=print, **options: str):
    return start_lab(parse_lab(f"dynamo@{VERSION}", options), folder, progress, run_id=run_id)


def chat(url: str) -> int:
    body = {"model": "pdchaos-tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)  # noqa: S310
    with NO_PROXY.open(request, timeout=30) as answer:
        return answer.status


def serves_within(url: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if chat(url) == 200:
                return True
        except OSError:
            time.sleep(0.2)
    return False


def gone_within(run_id: str, seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := marked(run_id)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


@pytest.mark.parametrize("discovery", ["file", "etcd"])
def test_it_serves_survives_the_replacement_of_each_node_and_leaves_nothing(tmp_path, discovery):
    if discovery == "etcd" and not any(Path(folder, "etcd").exists() for folder in os.get_exec_path()):
        pytest.skip("etcd is not installed (apt-get install etcd-server)")
    run_id = f"real-dynamo-{discovery}-{os.getpid()}"
    running = lab(tmp_path, run_id, discovery=discovery)
    try:
        target = running.target
        assert 200 == chat(target.router.url)
        for at, server in enumerate((target.router, *target.prefill, *target.decode)):
            before = running.pids
            os.kill(before[at], signal.SIGKILL)
            running.restart(server.name)
            assert before[at] != running.pids[at] == int(Path(server.pidfile).read_text())
            assert serves_within(target.router.url, 60), f"after {server.name} was replaced"
    finally:
        assert [] == running.stop()
    assert [] == gone_within(run_id, 5)
    assert not Path(f"/tmp/{PREFIX}{run_id}").exists()


def test_nothing_of_it_listens_where_others_could_reach_it(tmp_path):
    with lab(tmp_path, "real-dynamo-listens") as running:
        ours = set(running.pids) | {child.pid for pid in running.pids for child in psutil.Process(pid).children()}
        here = Path("/proc/self/ns/net").readlink()
        inside = {Path(f"/proc/{pid}/ns/net").readlink() for pid in ours}
        host = running.target.router.url.removeprefix("http://").partition(":")[0]
        listening = Path(f"/proc/{running.pids[1]}/net/tcp").read_text()
        assert here not in inside or host == "127.0.0.1"
        assert "00000000:" in listening, "it no longer binds every interface: the namespace may not be needed any more"


OWNER = """
import sys, time
from pathlib import Path
from chaos.lab.provider import parse_lab, start_lab
lab = start_lab(parse_lab(sys.argv[1], {}), Path(sys.argv[3]), lambda line: None, run_id=sys.argv[2])
print("up", flush=True)
time.sleep(600)
"""


def test_nothing_is_left_when_its_owner_is_killed(tmp_path):
    run_id = f"real-dynamo-killed-{os.getpid()}"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, f"dynamo@{VERSION}", run_id, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert "up\n" == owner.stdout.readline()
    assert 3 == len(marked(run_id))
    owner.kill()
    owner.communicate()
    assert [] == gone_within(run_id, 20)


def test_a_node_that_dies_while_starting_is_an_error_with_its_log_and_takes_the_others_along(tmp_path):
    run_id = f"real-dynamo-dies-{os.getpid()}"

    def kill_decode(line: str) -> None:
        if line.startswith("decode-0 started, pid "):
            os.kill(int(line.rpartition(" ")[2]), signal.SIGKILL)

    (tmp_path / "decode-0.log").write_text("its last words\n")
    with pytest.raises(LabError, match=r"decode-0 died \(signal 9\)\n(?s:.*)its last words"):
        lab(tmp_path, run_id, kill_decode)
    assert [] == gone_within(run_id, 5)
