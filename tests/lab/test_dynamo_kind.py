"""The Dynamo lab as far as it goes without an installed engine: asking for one, command lines, installing, removing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from chaos.lab.catalogue import catalogue, parse_lab
from chaos.lab.real import cache
from chaos.lab.real.commands import MODEL_NAME
from chaos.lab.real.dynamo.commands import Commands, Place, Settings
from chaos.lab.real.dynamo.install import TRIED, DynamoInstaller
from chaos.model.errors import LabError, UsageError

ROUTER = Place("router", "router", "10.0.0.2", 20000, 20001)
PREFILL = Place("prefill", "prefill-0", "10.0.0.2", 0, 20002, bootstrap_port=20003)
DECODE = Place("decode", "decode-0", "10.0.0.2", 0, 20004)


@pytest.fixture
def installer(tmp_path, monkeypatch):
    monkeypatch.setenv("PDCHAOS_LABS", str(tmp_path / "labs"))
    monkeypatch.setattr(cache, "make_venv", lambda folder, _: folder / "bin" / "python")
    monkeypatch.setattr(cache, "pip", lambda *_: None)
    monkeypatch.setattr(cache, "run", lambda *_: None)
    monkeypatch.setattr(cache, "check_platform", lambda _: None)
    return DynamoInstaller()


def commands(installer, etcd: str = "", **options) -> Commands:
    return Commands(installer, "1.6.1", Settings(**options), scratch=Path("/scratch"), run_id="r", etcd=etcd)


@pytest.mark.parametrize(
    ("text", "options", "message", "hint"),
    [
        ("dynamo", {}, "lab dynamo needs a version", "for example lab:dynamo@1.6.1"),
        ("dynamo@1.6.1", {"discovry": "etcd"}, "lab dynamo has no option 'discovry'", "did you mean 'discovery'?"),
        ("dynamo@1.6.1", {"discovery": "nats"}, "option discovery cannot be 'nats'", "there are: file, etcd"),
        ("dynamo@1.6.1", {"prefill": "0"}, "option prefill=0 is out of range", "from 1 to 8"),
    ],
)
def test_a_wrong_version_or_option_is_refused_with_a_hint(text, options, message, hint):
    with pytest.raises(UsageError) as refused:
        parse_lab(text, options)
    assert (message, hint) == (refused.value.message, refused.value.hint)


@pytest.mark.parametrize(("discovery", "lease_s"), [("file", 10.0), ("etcd", 30.0)])
def test_the_outline_tells_packs_timeouts_and_permits_every_fault(discovery, lease_s):
    outline = parse_lab("dynamo@1.6.1", {"prefill": "2", "decode": "3", "discovery": discovery}).outline()
    assert (2, 3, lease_s) == (len(outline.prefill), len(outline.decode), outline.timeouts["lease"])
    assert ("dynamo", "dynamo-frontend") == (outline.engine, outline.router_engine)
    assert {"kill", "signal", "restart", "protocol"} <= set(outline.allow)


def test_a_version_that_is_not_installed_says_how_to_install_it(installer, tmp_path):
    with pytest.raises(UsageError, match=r"dynamo 1\.6\.1 is not installed") as refused:
        parse_lab("dynamo@1.6.1", {}).start(tmp_path, lambda _: None, run_id="r")
    assert "pdchaos lab install dynamo@1.6.1" == refused.value.hint


def test_etcd_that_is_missing_is_named_with_the_command_that_brings_it(installer, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(LabError, match="needs the program etcd") as refused:
        parse_lab("dynamo@1.6.1", {"discovery": "etcd"}).start(tmp_path, lambda _: None, run_id="r")
    assert "apt-get install etcd-server" == refused.value.hint


def test_it_says_that_its_workers_are_mock_engines():
    info = next(lab for lab in catalogue() if lab.name == "dynamo")
    assert any("mock engine" in standin and "random tokens" in standin for standin in info.standins)
    assert set(TRIED) == {build.name for build in info.builds}


def test_versions_share_what_they_can_and_the_last_one_takes_it_along(installer):
    told = []
    for version in ("1.6.1", "1.7.0"):
        installer.install(version, told.append)
    assert ["1.6.1", "1.7.0"] == [each.version for each in installer.installed()]
    assert 1 == sum("UNTRIED" in line for line in told)
    installer.remove("1.6.1")
    assert ["1.7.0"] == [each.version for each in installer.installed()]
    installer.remove("1.7.0")
    assert not installer.root.exists()


def test_every_address_that_can_be_given_is_given(installer):
    made = commands(installer)
    line = made.node(ROUTER)
    assert ("10.0.0.2", "20000") == (line[line.index("--http-host") + 1], line[line.index("--http-port") + 1])
    hosts = {name: value for name, value in made.environment(PREFILL).items() if name.endswith("_HOST")}
    assert 6 == len(hosts)
    assert {"10.0.0.2"} == set(hosts.values())
    assert "20002" == made.environment(PREFILL)["DYN_SYSTEM_PORT"]


def test_options_reach_the_command_lines(installer):
    made = commands(installer, migration=3, router="random", speedup=0.1, blocks=64, max_seqs=8)
    frontend, prefill, decode = made.node(ROUTER), made.node(PREFILL), made.node(DECODE)
    assert ("random", "3") == (
        frontend[frontend.index("--router-mode") + 1],
        frontend[frontend.index("--migration-limit") + 1],
    )
    for worker in (prefill, decode):
        told = {word: worker[at + 1] for at, word in enumerate(worker) if word.startswith("--")}
        assert ("0.1", "64", "8", MODEL_NAME) == (
            told["--speedup-ratio"],
            told["--num-gpu-blocks-override"],
            told["--max-num-seqs"],
            told["--model-name"],
        )
    assert "20003" == prefill[prefill.index("--bootstrap-ports") + 1]
    assert "--bootstrap-ports" not in decode
    assert "--migration-limit" not in commands(installer).node(ROUTER)


def test_the_engines_environment_holds_nothing_of_ours_that_would_change_it(installer, monkeypatch):
    for name in ("HTTP_PROXY", "DYN_ROUTER_MODE", "PYTHONHOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "x")
    assert "x" not in commands(installer).environment(DECODE).values()


def test_workers_are_found_by_files_or_by_etcd(installer):
    by_files = commands(installer).environment(DECODE)
    by_etcd = commands(installer, etcd="http://10.0.0.2:2379", discovery="etcd").environment(DECODE)
    assert ("file", "/scratch/discovery") == (by_files["DYN_DISCOVERY_BACKEND"], by_files["DYN_FILE_KV"])
    assert "ETCD_ENDPOINTS" not in by_files
    assert ("etcd", "http://10.0.0.2:2379") == (by_etcd["DYN_DISCOVERY_BACKEND"], by_etcd["ETCD_ENDPOINTS"])
