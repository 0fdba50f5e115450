"""The SGLang lab as far as it goes without an installed engine: asking for one, command lines, installing, removing."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.lab.catalogue import catalogue, find_installer, parse_lab
from chaos.lab.real import cache
from chaos.lab.real.commands import MODEL_NAME
from chaos.lab.real.sglang import install
from chaos.lab.real.sglang.commands import OTHER_TRANSFER, Commands, Place, Settings
from chaos.lab.real.sglang.install import STANDINS, TRIED, SGLangInstaller
from chaos.lab.real.sglang.lab import check_mooncake
from chaos.model.errors import LabError, UsageError

PREFILL = Place("prefill", "prefill-0", "10.0.0.2", 20001, bootstrap_port=20002)
DECODE = Place("decode", "decode-0", "10.0.0.2", 20003)
ROUTER = Place("router", "router", "10.0.0.2", 20004, metrics_port=20005)


@pytest.fixture
def installer(tmp_path, monkeypatch):
    monkeypatch.setenv("PDCHAOS_LABS", str(tmp_path / "labs"))
    return SGLangInstaller()


@pytest.fixture
def fake(monkeypatch):
    """An installation without a network: what is run is only noted, but for where it fails."""
    ran = []

    def pip(python, arguments, what, progress) -> None:
        ran.append(what)
        if "--target" in arguments:
            options = Path(arguments[arguments.index("--target") + 1]) / "sglang" / "srt" / "server_args.py"
            options.parent.mkdir(parents=True)
            options.write_text("cuda_graph_backend_decode: str\n")

    def run(command, what, progress, environment=None) -> None:
        ran.append(what)

    monkeypatch.setattr(cache, "make_venv", lambda folder, _: folder / "bin" / "python")
    monkeypatch.setattr(cache, "pip", pip)
    monkeypatch.setattr(cache, "run", run)
    monkeypatch.setattr(cache, "check_platform", lambda _: None)
    monkeypatch.setattr(cache, "check_disk", lambda *_: None)
    return ran


def installed(installer, version="0.5.14"):
    installer.install(version, lambda _: None)
    return installer


def commands(installer, version="0.5.14", device="lo", **options) -> Commands:
    return Commands(installer, version, Settings(**options), scratch=Path("/scratch"), device=device, run_id="r")


# ---------------------------------------------------------------------------------------------- asking for one


@pytest.mark.parametrize(
    ("text", "options", "message", "hint"),
    [
        ("sglang", {}, "lab sglang needs a version", "for example lab:sglang@0.5.14"),
        ("sglang@0.5.14", {"transfr": "nixl"}, "lab sglang has no option 'transfr'", "did you mean 'transfer'?"),
        ("sglang@0.5.14", {"transfer": "nixle"}, "option transfer cannot be 'nixle'", "did you mean 'nixl'?"),
        ("sglang@0.5.14", {"waiting_timeout": "1"}, "option waiting_timeout=1 is out of range", "from 5 to 1e+06"),
        ("sglan@0.5.14", {}, "there is no lab 'sglan'", "did you mean 'sglang'?"),
    ],
)
def test_a_wrong_version_or_option_is_refused_with_a_hint(text, options, message, hint):
    with pytest.raises(UsageError) as refused:
        parse_lab(text, options)
    assert (message, hint) == (refused.value.message, refused.value.hint)


def test_the_outline_tells_the_engines_timeouts_and_permits_every_fault():
    outline = parse_lab("sglang@0.5.14", {"prefill": "2", "waiting_timeout": "45"}).outline()
    assert (2, 1, 45.0, 45.0) == (
        len(outline.prefill),
        len(outline.decode),
        outline.timeouts["waiting"],
        outline.timeouts["bootstrap"],
    )
    assert {"kill", "signal", "restart", "protocol"} <= set(outline.allow)


def test_a_version_that_is_not_installed_says_how_to_install_it(installer, tmp_path):
    with pytest.raises(UsageError, match=r"sglang 0\.5\.14 is not installed") as refused:
        parse_lab("sglang@0.5.14", {}).start(tmp_path, lambda _: None, run_id="r")
    assert "pdchaos lab install sglang@0.5.14" == refused.value.hint


def test_every_stand_in_is_named():
    info = next(lab for lab in catalogue() if lab.name == "sglang")
    named = " ".join(info.standins)
    source = (STANDINS / "sitecustomize.py").read_text()
    for what in ("torchvision", "sgl_kernel", "VRAM"):
        assert what in named
        assert what in source
    assert set(TRIED) == {build.name for build in info.builds}


# ---------------------------------------------------------------------------------------------- installing


def test_versions_share_what_they_can_and_the_last_one_takes_it_along(installer, fake):
    installed(installer, "0.5.14")
    fake.clear()
    installed(installer, "0.5.16")
    assert ["sglang 0.5.16: downloading and unpacking", "sglang 0.5.16: importing what a lab runs"] == fake
    assert ["0.5.14", "0.5.16"] == [each.version for each in installer.installed()]
    installer.remove("0.5.14")
    assert ["0.5.16"] == [each.version for each in installer.installed()]
    installer.remove("0.5.16")
    assert not installer.root.exists()


def test_an_untried_version_is_installed_with_a_notice_and_a_tried_one_without(installer, fake):
    told = []
    installer.install("0.5.17", told.append)
    assert [line for line in told if "UNTRIED" in line]
    told.clear()
    installer.install("0.5.14", told.append)
    assert not [line for line in told if "UNTRIED" in line]


def test_a_version_whose_imports_fail_is_not_installed(installer, fake, monkeypatch):
    def fails(command, what, progress, environment=None) -> None:
        if "importing" in what:
            raise LabError("ModuleNotFoundError: no module named 'newer'")

    monkeypatch.setattr(cache, "run", fails)
    with pytest.raises(LabError, match="newer"):
        installer.install("0.5.17", lambda _: None)
    assert [] == installer.installed()


def test_versions_are_useless_without_what_they_share(installer, fake):
    installed(installer)
    cache.discard(installer.deps.folder)
    assert [] == installer.installed()


def test_versions_are_listed_in_their_order(installer, fake):
    for version in ("0.5.9", "0.5.14", "0.5.10"):
        installed(installer, version)
    assert ["0.5.9", "0.5.10", "0.5.14"] == [each.version for each in installer.installed()]


@pytest.mark.parametrize("version", ["", "latest", "0.5.14; rm", "../0.5.14"])
def test_what_is_no_version_is_refused(installer, fake, version):
    with pytest.raises(UsageError):
        installer.install(version, lambda _: None)
    with pytest.raises(UsageError):
        installer.remove(version)
    assert not fake


def test_no_cpu_build_of_torch_on_the_index_means_its_default_build_with_its_dependencies(installer, monkeypatch, fake):
    asked = []

    def pip(python, arguments, what, progress) -> None:
        asked.append(arguments)
        if arguments[-1].endswith("+cpu"):
            raise LabError("no matching distribution")

    monkeypatch.setattr(cache, "pip", pip)
    told = []
    install._make_deps(installer.deps.folder, told.append)
    assert "--no-deps" not in asked[-1]
    assert any("no CPU build of torch" in line for line in told)


def test_the_sim_needs_no_installation():
    with pytest.raises(UsageError, match="lab sim needs no installation"):
        find_installer("sim")


# ---------------------------------------------------------------------------------------------- command lines


def test_a_server_listens_where_it_is_told_and_nowhere_else(installer, fake):
    made = commands(installed(installer))
    line = made.server(PREFILL)
    assert "10.0.0.2" == line[line.index("--host") + 1]
    assert "20002" == line[line.index("--disaggregation-bootstrap-port") + 1]
    assert MODEL_NAME == line[line.index("--served-model-name") + 1]  # a path would tell of the machine
    environment = made.server_environment(PREFILL)
    assert ("10.0.0.2", "lo", "lo") == tuple(
        environment[name] for name in ("SGLANG_HOST_IP", "UCX_NET_DEVICES", "GLOO_SOCKET_IFNAME")
    )
    router = made.router(ROUTER, [PREFILL], [DECODE])
    assert "10.0.0.2" == router[router.index("--prometheus-host") + 1]


def test_flags_that_a_release_does_not_know_are_left_out(installer, fake):
    made = commands(installed(installer))
    assert "--cuda-graph-backend-decode=disabled" in made.server(DECODE)
    assert "--disaggregation-decode-retraction-backup" not in made.server(DECODE)
    options = installer.version("0.5.14").folder / "sglang" / "srt" / "arg_groups" / "fields" / "decode.py"
    options.parent.mkdir(parents=True)
    options.write_text("disaggregation_decode_retraction_backup: str\n")
    newer = commands(installer)
    assert "--disaggregation-decode-retraction-backup" in newer.server(DECODE)
    assert "--disaggregation-decode-retraction-backup" not in newer.server(PREFILL)


def test_the_engines_environment_holds_nothing_of_ours_that_would_change_it(installer, fake, monkeypatch):
    for name in ("HTTP_PROXY", "SGLANG_HEALTH_CHECK_TIMEOUT", "PYTHONHOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "x")
    made = commands(installed(installer), waiting_timeout=45)
    environment = made.server_environment(DECODE)
    assert "x" not in environment.values()
    assert "45" == environment["SGLANG_DISAGGREGATION_WAITING_TIMEOUT"]
    assert environment["PYTHONPATH"].startswith(f"{STANDINS}:")
    assert "PYTHONPATH" not in made.router_environment()


def test_mooncake_is_told_to_use_tcp_and_the_small_balancer_has_no_metrics(installer, fake):
    made = commands(installed(installer), transfer="mooncake", router="mini-lb")
    assert "tcp" == made.server_environment(DECODE)["MOONCAKE_PROTOCOL"]
    router = made.router(Place("router", "router", "10.0.0.2", 20004), [PREFILL], [DECODE])
    assert "--mini-lb" in router
    assert "--prometheus-port" not in router


def test_a_variant_has_the_other_transfer_backend_and_nothing_else_changes(installer, fake):
    made = commands(installed(installer))
    plain, other = made.server(DECODE), made.server(DECODE, OTHER_TRANSFER)
    assert {("nixl", "mooncake")} == {(a, b) for a, b in zip(plain, other, strict=True) if a != b}
    assert "tcp" == made.server_environment(DECODE, OTHER_TRANSFER)["MOONCAKE_PROTOCOL"]
    back = commands(installer, transfer="mooncake")
    assert "nixl" in back.server(DECODE, OTHER_TRANSFER)
    assert "MOONCAKE_PROTOCOL" not in back.server_environment(DECODE, OTHER_TRANSFER)


def test_the_gateway_smg_is_installed_when_first_it_is_needed_and_goes_with_the_last_version(installer, fake):
    made = commands(installed(installer), router="smg")
    router = made.router(ROUTER, [PREFILL], [DECODE])
    assert [str(installer.smg.folder / "bin" / "python"), "-m", "smg.launch_router"] == router[:3]
    assert "--prometheus-port" in router
    assert not installer.smg.complete
    told: list[str] = []
    installer.build_smg(told.append)
    assert installer.smg.complete
    assert any(line.startswith("smg: ") for line in told)
    told.clear()
    installer.build_smg(told.append)
    assert [] == told
    installer.remove("0.5.14")
    assert not installer.smg.folder.exists()


def test_missing_system_libraries_of_mooncake_are_named_with_the_command_that_brings_them(monkeypatch):
    def absent(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", absent)
    with pytest.raises(LabError, match="libibverbs1, librdmacm1, libnuma1") as refused:
        check_mooncake()
    assert "apt-get install libibverbs1 librdmacm1 libnuma1" == refused.value.hint
