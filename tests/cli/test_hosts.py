"""Hosts that cannot be reached: one message, the right exit code, nobody kept waiting. A real sshd, real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.cli.doctor import doctor as doctor_here
from chaos.engine.doctor import places

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/hosts"))

from sshd import Sshd, free_port, keygen, needs_sshd  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = needs_sshd


@pytest.fixture
def sshd(tmp_path: Path):
    with Sshd(tmp_path / "sshd") as server:
        yield server


def write_target(folder: Path, ssh: dict[str, object], **more: object) -> None:
    router, prefill, decode = ({"url": f"http://127.0.0.1:{port}", "ssh": ssh} for port in (1, 2, 3))
    target = {"version": 1, "name": "t", "environment": "staging", "allow": ["kill"]}
    target |= {"router": router, "prefill": [prefill], "decode": [decode]} | more
    (folder / "target.yaml").write_text(json.dumps(target))


def run(folder: Path, ssh: dict[str, object]) -> subprocess.Popen[str]:
    write_target(folder, ssh)
    return subprocess.Popen(
        [sys.executable, "-m", "chaos", "run", "abort-cascade", "-t", "target.yaml", "--reports", "reports"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
    )


def doctor(folder: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "doctor", "-t", "target.yaml", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        timeout=120,
    )
    told = json.loads(done.stdout)
    assert done.returncode == told["exit_code"]
    return told


def _nobody_knows_its_key(sshd: Sshd, folder: Path) -> dict[str, object]:
    sshd.known_hosts.write_text("")
    return {}


def _another_key(sshd: Sshd, folder: Path) -> dict[str, object]:
    sshd.kill()
    sshd.new_host_key()
    sshd.start()
    return {}


def _nobody_listens(sshd: Sshd, folder: Path) -> dict[str, object]:
    return {"port": free_port()}


def _a_wrong_key(sshd: Sshd, folder: Path) -> dict[str, object]:
    return {"identity": str(keygen(folder / "wrong"))}


def _no_known_hosts(sshd: Sshd, folder: Path) -> dict[str, object]:
    return {"known_hosts": str(folder / "nobody")}


def _no_key(sshd: Sshd, folder: Path) -> dict[str, object]:
    return {"identity": str(folder / "none")}


@pytest.mark.parametrize(
    ("made", "code", "told"),
    [
        (_nobody_knows_its_key, 5, "is not known"),
        (_another_key, 5, "THE HOST KEY HAS CHANGED"),
        (_nobody_listens, 6, "Connection refused"),
        (_a_wrong_key, 2, "does not accept root's key"),
        (_no_key, 2, "cannot be read"),
        (_no_known_hosts, 2, "nobody cannot be read"),
    ],
)
def test_what_keeps_us_out_is_said_once_with_what_to_do(
    sshd: Sshd, tmp_path: Path, made: Callable[[Sshd, Path], dict[str, object]], code: int, told: str
) -> None:
    ssh = sshd.ssh(**made(sshd, tmp_path)).model_dump(exclude_none=True)
    with run(tmp_path, ssh) as process:
        out, err = process.communicate(timeout=120)
    assert (code, True) == (process.returncode, told in err), err
    assert 1 == err.count(told)  # for three servers on one host
    assert "hint:" in err
    examined = doctor(tmp_path)
    assert code == examined["exit_code"], "one mistake, one code"
    (row,) = [row for row in examined["rows"] if row["what"] == "ssh"]
    assert ("router-0, prefill-0, decode-0", True) == (row["where"], told in row["said"])
    assert "Traceback" not in out + err
    assert [] == list(tmp_path.glob("reports/*"))


def test_doctor_does_not_take_its_own_relay_for_another_run(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(places, "TOLD", 1000)  # whoever else lives on this machine
    write_target(tmp_path, sshd.ssh().model_dump(exclude_none=True), via="tunnel")
    doctor_here(str(tmp_path / "target.yaml"), production=False, as_json=True)
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {"ssh", "lock", "leftovers"} <= {row["what"] for row in rows if row["state"] == "ok"}, rows
    assert [] == [row for row in rows if row["what"].startswith("other run") and "run doctor" in row["said"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_gives_up_while_we_connect_is_not_kept(sshd: Sshd, tmp_path: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(120)
        process = run(tmp_path, sshd.ssh(port=mute.getsockname()[1]).model_dump(exclude_none=True))
        with process, mute.accept()[0]:
            process.send_signal(number)
            _, err = process.communicate(timeout=120)
    assert (130, True) == (process.returncode, "interrupted" in err), err
    assert "Traceback" not in err
