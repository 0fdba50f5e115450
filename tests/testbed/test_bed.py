"""The test bed: hosts are machines of their own, can be disturbed, and nothing of a bed outlives it."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from chaos.library import load_target
from chaos.model.errors import UsageError
from testbed.bed import Bed, is_up
from testbed.errors import BedError
from testbed.folder import REPOSITORY
from testbed.mounts import GUEST, SUDOER, USERS
from testbed.needs import missing
from testbed.plan import LAPTOP
from testbed.processes import held_files

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no test bed here: {missing()}")
PATIENCE_S = 60.0
ASK = """
import json, sys, urllib.request
body = {"model": "sim-llm", "prompt": "one two three", "max_tokens": 5}
asked = urllib.request.Request(sys.argv[1], json.dumps(body).encode(), {"content-type": "application/json"})
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=30) as reply:
    print(json.load(reply)["usage"]["completion_tokens"])
"""


@pytest.fixture(scope="module")
def bed():
    with Bed.start(timezones={"decode-0": "IST-5:30"}) as started:
        yield started


def eventually(what, wanted=True):
    """Wait until a call answers as wanted; the answer."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := what()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return answer


def ssh(bed, host, *words, timeout_s=PATIENCE_S, options=()):
    command = bed.ssh(host, *words)
    command[1:1] = options
    argv = bed.command(LAPTOP, command)
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
    )


def lives(pid):
    return Path(f"/proc/{pid}").exists()


# ------------------------------------------------------------------------------------------------ what it is


def test_every_host_lets_us_in_and_is_a_machine_of_its_own(bed):
    assert ("router", "prefill-0", "decode-0") == bed.hosts
    for host in bed.hosts:
        look = "hostname; cat /proc/1/comm; ls /proc | grep -c '^[0-9]'; pd-node status; pwd"
        name, first, processes, node, home = ssh(bed, host, look).stdout.split("\n")[:5]
        assert host == name
        assert first.startswith("python")
        assert int(processes) < 20
        assert f"pid {bed.pid(host)}" == node
        assert home == "/root"


def test_a_look_into_an_engine_s_threads_is_possible_on_its_host(bed):
    told = ssh(bed, "prefill-0", f"py-spy dump --nonblocking --pid {bed.pid('prefill-0')}")
    assert "bootstrap_thread" in told.stdout, told.stderr


def test_users_that_are_not_root_may_log_in_and_one_of_them_may_use_sudo(bed):
    for user, number in USERS.items():
        assert f"{number}\n/home/{user}\n" == ssh(bed, "decode-0", "id -u; pwd", options=("-l", user)).stdout
    assert 0 == ssh(bed, "decode-0", "pd-node status", options=("-l", SUDOER)).returncode
    assert "Permission denied" in ssh(bed, "decode-0", "pd-node status", options=("-l", GUEST)).stderr
    administer = "ip link set eth0 mtu 1500"
    assert "not permitted" in ssh(bed, "decode-0", administer, options=("-l", SUDOER)).stderr
    if shutil.which("sudo"):
        assert 0 == ssh(bed, "decode-0", f"sudo -n {administer}", options=("-l", SUDOER)).returncode
        assert 0 != ssh(bed, "decode-0", f"sudo -n {administer}", options=("-l", GUEST)).returncode
    assert {} == eventually(bed.leftovers, {})


def test_a_request_goes_from_the_laptop_through_the_router_to_both_engines(bed):
    url = f"http://{bed.address('router')}:30000/v1/completions"
    assert "5\n" == bed.run_on(LAPTOP, [sys.executable, "-c", ASK, url]).stdout
    assert "POST /v1/completions" in (bed.host_folder("prefill-0").logs / "prefill-0.log").read_text()


def test_a_host_listens_on_its_own_address_only(bed):
    for host in bed.hosts:
        lines = bed.run_on(host, ["cat", "/proc/net/tcp", "/proc/net/tcp6"]).stdout.splitlines()
        listening = [line.split()[1].split(":")[0] for line in lines if line.split()[3] == "0A"]
        own = "".join(f"{int(part):02X}" for part in reversed(bed.address(host).split(".")))
        assert {own} == set(listening)


def test_nothing_of_a_host_is_seen_by_another_or_outside(bed):
    bed.run_on("decode-0", ["touch", "/tmp/mine", "/run/mine", "/dev/shm/mine"])
    try:
        assert not any(Path(folder, "mine").exists() for folder in ("/tmp", "/run", "/dev/shm"))
        assert "" == bed.run_on("prefill-0", ["find", "/tmp", "/run", "/dev/shm", "-name", "mine"]).stdout
        assert 0 != bed.run_on("prefill-0", ["touch", "/etc/mine"], check=False).returncode
    finally:
        bed.run_on("decode-0", ["rm", "/tmp/mine", "/run/mine", "/dev/shm/mine"])


def test_the_target_file_says_what_is_true(bed):
    for via in ("direct", "tunnel", "remote"):
        assert via == load_target(str(bed.target(via))).value.via
    told = yaml.safe_load(bed.target().read_text())
    for node in (told["router"], *told["prefill"], *told["decode"]):
        host = node["name"]
        assert bed.address(host) == node["ssh"]["host"]
        assert f"{bed.pid(host)}\n" == ssh(bed, host, "cat", node["pidfile"]).stdout
    assert "Prefill batch" in ssh(bed, "prefill-0", "cat", *told["prefill"][0]["log"]).stdout


def test_one_node_has_a_log_that_only_a_command_can_read_and_the_command_ends_with_its_reader(bed):
    command = yaml.safe_load(bed.target().read_text())["decode"][0]["log"][0]["command"]
    reading = bed.popen_laptop(bed.ssh("decode-0", command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with reading:
        assert "GET /health" in reading.stdout.readline()  # the access log
        assert "warmup" in reading.stderr.readline()  # the scheduler
        reading.kill()
    assert {} == eventually(bed.leftovers, {})


def test_an_unknown_build_is_refused_before_anything_starts():
    with pytest.raises(UsageError, match="no build"):
        Bed.start(build="healthyy")


def test_a_host_can_have_a_time_zone_of_its_own_in_its_shell_and_in_its_log(bed):
    assert "+0530\n" == ssh(bed, "decode-0", "date +%z").stdout
    assert "+0000\n" == ssh(bed, "router", "TZ= date +%z").stdout
    first = (bed.host_folder("decode-0").journal / "decode-0.err").read_text().split("]")[0]
    logged = datetime.strptime(first, "[%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    assert timedelta(hours=5) < logged - datetime.now(UTC) < timedelta(hours=5, minutes=30)


# ------------------------------------------------------------------------------------------------ what is done to it


def test_a_killed_node_stays_dead_until_it_is_restarted_over_ssh(bed):
    before = bed.pid("decode-0")
    bed.run_on("decode-0", ["kill", "-KILL", str(before)])
    assert 0 == eventually(lambda: bed.pid("decode-0"), 0)
    assert 3 == ssh(bed, "decode-0", "pd-node", "status").returncode
    assert 0 == ssh(bed, "decode-0", yaml.safe_load(bed.target().read_text())["decode"][0]["restart"]).returncode
    assert bed.pid("decode-0") not in (0, before)
    assert f"{bed.pid('decode-0')}\n" == ssh(bed, "decode-0", "cat", "/run/pd/decode-0.pid").stdout
    assert {} == bed.leftovers()


def test_whatever_is_left_on_a_host_is_named_and_nothing_else(bed):
    assert {} == eventually(bed.leftovers, {})
    node = str(bed.pid("prefill-0"))
    leave = (
        f"set -e; setsid sleep 300 >/dev/null 2>&1 & echo $! > /tmp/forgotten; kill -STOP {node};"
        "tc qdisc add dev eth0 root handle 7db1: tbf rate 1gbit burst 1mb latency 50ms;"
        "tc qdisc add dev eth0 clsact;"
        "tc filter add dev eth0 ingress protocol ip u32 match ip src 10.77.0.4 flowid 1:1;"
        "nft add table inet pdchaos_x; ip link add name another type bridge"
    )
    undo = (
        f"kill $(cat /tmp/forgotten); rm /tmp/forgotten; kill -CONT {node};"
        "tc qdisc del dev eth0 root; tc qdisc del dev eth0 clsact;"
        "nft delete table inet pdchaos_x; ip link del another"
    )
    try:
        bed.run_on("prefill-0", ["sh", "-c", leave])
        left = bed.leftovers()
    finally:
        bed.run_on("prefill-0", ["sh", "-c", undo], check=False)
    assert ["prefill-0"] == list(left)
    found = left["prefill-0"]
    assert ["sleep"] == [each.split()[1] for each in found.processes]
    assert [node] == [each.split()[0] for each in found.stopped]
    assert ["clsact", "tbf"] == sorted(json.loads(each)["kind"] for each in found.qdiscs)
    assert found.filters
    assert ["pdchaos_x"] == [json.loads(each)["name"] for each in found.nft]
    assert ["another"] == found.links
    assert ["/tmp/forgotten"] == found.files
    assert {} == eventually(bed.leftovers, {})


def test_a_file_that_a_process_has_mapped_is_known_to_be_its_own(tmp_path):
    path = tmp_path / "shared memory"
    path.write_bytes(bytes(4096))
    with path.open("rb+") as file, mmap.mmap(file.fileno(), 4096):
        assert str(path) in held_files([os.getpid()])
    assert str(path) not in held_files([os.getpid()])


def test_what_runs_on_the_laptop_is_named_too(bed):
    with bed.popen_laptop(["sleep", "300"]) as forgotten:
        assert [f"{forgotten.pid} sleep 300"] == eventually(
            lambda: bed.leftovers().get(LAPTOP) and bed.leftovers()[LAPTOP].processes, [f"{forgotten.pid} sleep 300"]
        )
        forgotten.kill()
    assert {} == bed.leftovers()
    bed.run_on(LAPTOP, ["sh", "-c", "mkdir /run/mine; touch /run/mine/too /dev/shm/mine"])
    assert ["/dev/shm/mine", "/run/mine", "/run/mine/too"] == bed.leftovers()[LAPTOP].files
    assert not Path("/run/mine").exists()
    bed.run_on(LAPTOP, ["rm", "-r", "/run/mine", "/dev/shm/mine"])
    assert {} == bed.leftovers()


def test_a_command_on_the_laptop_runs_where_it_was_started_and_sees_our_files(bed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "note").write_text("ours")
    assert f"{tmp_path}\nours" == bed.run_on(LAPTOP, ["sh", "-c", "pwd; cat note"]).stdout
    with bed.popen_laptop(["sleep", "300"]) as started:
        assert eventually(lambda: Path(f"/proc/{started.pid}/comm").read_text(), "sleep\n") == "sleep\n"
        started.kill()


def test_a_hung_host_takes_connections_and_never_answers(bed):
    bed.sshd_stop("decode-0")
    try:
        assert 255 == ssh(bed, "decode-0", "true", options=("-o", "ConnectTimeout=1")).returncode
        assert bed.leftovers()["decode-0"].stopped
    finally:
        bed.sshd_cont("decode-0")
    assert 0 == ssh(bed, "decode-0", "true").returncode


def test_a_cut_concerns_the_laptop_only(bed):
    bed.cut("prefill-0")
    try:
        assert 255 == ssh(bed, "prefill-0", "true", options=("-o", "ConnectTimeout=1")).returncode
        assert 0 == ssh(bed, "decode-0", "true").returncode
        reach = f"import socket; socket.create_connection(('{bed.address('prefill-0')}', 30000), 30)"
        bed.run_on("router", ["python3", "-c", reach])
    finally:
        bed.mend()
    assert 0 == ssh(bed, "prefill-0", "true").returncode


def test_a_closed_bed_lets_the_laptop_in_by_ssh_alone(bed):
    reach = f"import socket; socket.create_connection(('{bed.address('prefill-0')}', 30000), 1)"
    bed.run_on(LAPTOP, ["python3", "-c", reach])
    bed.only_ssh()
    try:
        assert "timed out" in bed.run_on(LAPTOP, ["python3", "-c", reach], check=False).stderr
        assert 0 == ssh(bed, "prefill-0", "true").returncode
    finally:
        bed.only_ssh(on=False)
    bed.run_on(LAPTOP, ["python3", "-c", reach])


def test_a_changed_host_key_is_refused_until_it_is_trusted(bed):
    bed.change_host_key("prefill-0")
    try:
        refused = ssh(bed, "prefill-0", "true")
        assert (255, True) == (refused.returncode, "HOST IDENTIFICATION HAS CHANGED" in refused.stderr)
    finally:
        bed.trust_host_keys()
    assert 0 == ssh(bed, "prefill-0", "true").returncode


def test_a_restart_of_sshd_ends_connections_unless_they_are_to_live(bed):
    with bed.popen_laptop(bed.ssh("router", "echo in; sleep 300"), stdout=subprocess.PIPE, text=True) as session:
        assert "in\n" == session.stdout.readline()
        bed.sshd_restart("router", sessions=False)
        assert session.poll() is None
        bed.sshd_restart("router")
        assert 255 == session.wait(PATIENCE_S)
    bed.run_on("router", ["pkill", "sleep"], check=False)  # what a session had begun goes on without it
    assert 0 == ssh(bed, "router", "true").returncode
    assert {} == eventually(bed.leftovers, {})


def test_a_full_disk_takes_not_a_byte_more(bed):
    bed.fill_disk("decode-0")
    try:
        for folder in ("/tmp", "/run", "/dev/shm", "/root"):
            full = ssh(bed, "decode-0", f"echo x > {folder}/x")
            assert "No space left" in full.stderr
    finally:
        bed.empty_disk("decode-0")
    assert 0 == ssh(bed, "decode-0", "echo x > /tmp/x && rm /tmp/x /run/x /dev/shm/x /root/x").returncode
    assert {} == eventually(bed.leftovers, {})


def test_a_flood_grows_the_log_by_what_was_asked_for(bed):
    log = bed.host_folder("prefill-0").logs / "prefill-0.log"
    before = log.stat().st_size
    bed.flood_log("prefill-0", mb_per_s=20, seconds=0.2)
    assert eventually(lambda: log.stat().st_size - before >= 4 << 20)


# ------------------------------------------------------------------------------------------------ that it ends


def test_two_beds_do_not_meet_and_one_whose_supervisor_is_killed_leaves_nothing(bed, tmp_path):
    with Bed.start(prefill=0, decode=0, folder=tmp_path / "other") as other:
        assert bed.address("router") == other.address("router")
        assert "router\n" == ssh(other, "router", "hostname").stdout
        first = list(other.state["hosts"].values())
        inside = [each for host in first for each in _in_same_network(host)]
        assert len(inside) > len(first)
        os.kill(other.state["supervisor"], signal.SIGKILL)
        assert eventually(lambda: not any(map(lives, inside)))
        assert not is_up(other.folder)
    assert 0 == ssh(bed, "router", "true").returncode


def _in_same_network(pid):
    """Pids of everything in a process's network namespace, itself included."""
    namespace = Path(f"/proc/{pid}/ns/net").stat().st_ino
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns" / "net").stat().st_ino == namespace:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_a_bed_ends_with_the_process_that_started_it(tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from testbed.bed import Bed\n"
        "bed = Bed.start(prefill=0, decode=0, folder=Path(sys.argv[1])); print('up', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as owner:
        assert "up\n" == owner.stdout.readline()
        pids = list(Bed.attach(tmp_path).state["hosts"].values())
        owner.kill()
    assert eventually(lambda: not any(map(lives, pids)))


def test_a_forgotten_bed_ends_when_its_time_is_up(tmp_path):
    with Bed.start(prefill=0, decode=0, folder=tmp_path, time_limit_s=0.1) as bed:
        assert eventually(lambda: not is_up(bed.folder))


def test_the_command_line_starts_shows_and_ends_a_cluster(tmp_path):
    def testbed(*words):
        command = [sys.executable, "-m", "testbed", "--dir", str(tmp_path), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=REPOSITORY)

    up = testbed("up", "--prefill=0", "--decode=1", "--set=slots=8", "--hours=0.1")
    try:
        assert (0, "") == (up.returncode, up.stderr)
        assert f"-t {tmp_path}/target-tunnel.yaml" in up.stdout
        assert "already" in testbed("up").stderr
        assert ["laptop", "router", "decode-0"] == [line.split()[0] for line in testbed("status").stdout.splitlines()]
        assert LAPTOP == testbed("exec", LAPTOP, "--", "hostname").stdout.strip()
        assert 7 == testbed("exec", "decode-0", "--", "sh", "-c", "exit 7").returncode
        assert "no host 'decode-1'" in testbed("exec", "decode-1", "true").stderr
    finally:
        down = testbed("down")
    assert (0, "") == (down.returncode, down.stderr)
    with pytest.raises(BedError, match="no bed is up"):
        Bed.attach(tmp_path)
