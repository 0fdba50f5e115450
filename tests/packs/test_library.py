"""Scenarios and packs are found by name or path, from a wheel and from an editable install."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from chaos import library
from chaos.model.errors import InvalidFile, UserError

ROOT = Path(__file__).resolve().parents[2]


def test_an_editable_install_uses_the_folders_of_the_repository() -> None:
    assert ROOT / "scenarios" == library.folder("scenarios")
    assert ROOT / "probes" == library.folder("probes")
    assert {"sglang", "sglang-router", "dynamo", "dynamo-frontend"} <= set(library.names("probes"))


def test_a_loaded_file_keeps_its_bytes_and_their_hash() -> None:
    loaded = library.load_scenario("soak-no-fault")
    assert (ROOT / "scenarios" / "soak-no-fault.yaml").read_bytes() == loaded.text
    assert hashlib.sha256(loaded.text).hexdigest() == loaded.sha256


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("version: 1\nname: mine\n")
    assert "mine" == library.load_scenario(str(file)).value.name


def test_overrides_reach_the_scenario() -> None:
    assert 3 == library.load_scenario("abort-cascade", ["cycles.count=3"]).value.cycles.count


@pytest.mark.parametrize(
    ("reference", "message", "hint"),
    [
        ("abort-cascad", "there is no scenario 'abort-cascad'", "did you mean abort-cascade?"),
        ("zzz", "there is no scenario 'zzz'", f"known: {', '.join(library.names('scenarios'))}"),
        ("/dev/zero", "/dev/zero is not a regular file", ""),
        ("/dev/", "/dev is a folder", ""),
        ("./no/such.yaml", "no/such.yaml cannot be read: No such file or directory", ""),
        ("a\0b.yaml", "a\0b.yaml cannot be read: embedded null byte", ""),
    ],
)
def test_what_cannot_be_found_or_read_is_told_clearly(reference: str, message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        library.load_scenario(reference)
    assert (message, hint) == (caught.value.message, caught.value.hint)
    assert 2 == caught.value.exit_code


def test_a_huge_sparse_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as out:
        out.truncate(1 << 40)
    with pytest.raises(UserError, match="1099511627776 bytes; 1048576 is the limit"):
        library.load_scenario(str(file))


def test_a_named_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="not a regular file"):
        library.load_scenario(str(pipe))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "secret.yaml"
    file.write_text("version: 1")
    file.chmod(0)
    with pytest.raises(UserError, match="Permission denied"):
        library.load_scenario(str(file))


def test_a_binary_file_is_an_invalid_file_with_a_position(tmp_path: Path) -> None:
    file = tmp_path / "binary.yaml"
    file.write_bytes(Path(sys.executable).read_bytes()[:5000])
    with pytest.raises(InvalidFile):
        library.load_scenario(str(file))


def test_a_target_is_checked_against_the_packs(tmp_path: Path) -> None:
    file = tmp_path / "target.yaml"
    urls = [f'{{url: "http://127.0.0.1:{port}"}}' for port in (1, 2, 3)]
    file.write_text(
        "version: 1\nname: t\ntimeouts: {wating: 30s}\n"
        f"router: {urls[0]}\nprefill: [{urls[1]}]\ndecode: [{urls[2]}]\nenvironment: staging\nallow: []\n"
    )
    with pytest.raises(InvalidFile, match=r"3:12: the pack knows no timeout `wating` \(did you mean waiting\?\)"):
        library.load_target(str(file))


def test_paths_in_a_target_file_are_taken_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "target.yaml"
    rest = "log: [a.log, /var/b.log, ~/c.log], pidfile: run/p.pid"
    one, two, three = (f'{{url: "http://127.0.0.1:{port}", {rest}}}' for port in (1, 2, 3))
    file.write_text(
        f"version: 1\nname: t\nrouter: {one}\nprefill: [{two}]\ndecode: [{three}]\ntls: {{ca: ca.pem}}\n"
        "environment: staging\nallow: []\n"
    )
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("HOME", "/home/somebody")
    target = library.load_target(f"{tmp_path.name}/target.yaml").value
    for server in (target.router, target.prefill[0], target.decode[0]):
        assert [f"{tmp_path}/a.log", "/var/b.log", "/home/somebody/c.log"] == [log.file for log in server.log]
        assert f"{tmp_path}/run/p.pid" == server.pidfile
    assert f"{tmp_path}/ca.pem" == target.tls.ca


def test_a_wheel_carries_the_scenarios_and_packs_and_finds_them(tmp_path: Path) -> None:
    """Builds a real wheel with pip and imports it from where it was unpacked, away from the repository."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    if subprocess.run([sys.executable, "-c", "import hatchling"], check=False, capture_output=True).returncode == 0:
        build.insert(4, "--no-build-isolation")
    built = subprocess.run(build, check=False, capture_output=True, text=True)
    assert 0 == built.returncode, built.stderr
    (wheel,) = tmp_path.glob("pdchaos-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    program = (
        "from chaos import library\n"
        "print(library.folder('scenarios'))\n"
        "print(*library.names('scenarios'), *library.names('probes'))\n"
        "print(library.load_scenario('abort-cascade').value.name, library.load_pack('sglang').value.name)\n"
        "print(sorted(path.name for path in library.folder('templates').iterdir()))\n"
    )
    seen = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert [
        str(site / "chaos" / "_data" / "scenarios"),
        " ".join([*library.names("scenarios"), *library.names("probes")]),
        "abort-cascade sglang",
        "['observations.yaml', 'target-ssh.yaml', 'target.yaml']",
    ] == seen.stdout.splitlines()
