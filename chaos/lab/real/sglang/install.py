"""Installs SGLang versions: one environment with what all versions import, beside it each version's unpacked wheel.

deps/            virtual environment with everything but SGLang itself, shared by all versions
router/          virtual environment of sglang-router
smg/             virtual environment of smg, made when a lab first asks for it
model/           tiny model, made here
versions/0.5.14/ the wheel as published, put on PYTHONPATH after the stand-ins
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chaos.lab.real import cache
from chaos.lab.real.cache import Part
from chaos.lab.real.versions import VersionedInstaller, made_of, this_python
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str], None]

TRIED = ("0.5.14", "0.5.16", "0.5.23")
"""Versions that were run: a pair came up, generated, and was broken with nixl."""

STANDINS = Path(__file__).parents[1] / "sglang_cpu"
_HERE = Path(__file__).parent
_TORCH = "torch==2.13.0"
_NEEDED_BYTES = 6 * 1024**3  # 3.7 GB stay, pip needs as much again for its largest wheels at once
_NEEDED_PER_VERSION_BYTES = 300 * 1024**2
_IMPORTS = (
    "import sglang.srt.entrypoints.http_server, sglang.srt.managers.scheduler,"
    " sglang.srt.disaggregation.prefill, sglang.srt.disaggregation.decode, sglang.srt.disaggregation.nixl.conn"
)


class SGLangInstaller(VersionedInstaller):
    """Where SGLang is, and how it gets there."""

    name = "sglang"
    title = "SGLang"
    tried = TRIED
    shared_need_bytes = _NEEDED_BYTES
    version_need_bytes = _NEEDED_PER_VERSION_BYTES

    @property
    def deps(self) -> Part:
        """What the engine imports."""
        return Part(self.root / "deps", made_of(_HERE / "requirements.txt"))

    @property
    def router(self) -> Part:
        """sglang-router."""
        return Part(self.root / "router", made_of(_HERE / "requirements-router.txt"))

    @property
    def smg(self) -> Part:
        """The gateway smg."""
        return Part(self.root / "smg", made_of(_HERE / "requirements-smg.txt"))

    @property
    def model(self) -> Part:
        """The tiny model."""
        return Part(self.root / "model", made_of(_HERE / "tiny_model.py"))

    @property
    def shared(self) -> tuple[Part, ...]:
        """Both environments and the model."""
        return (self.router, self.deps, self.model)

    @property
    def on_demand(self) -> tuple[Part, ...]:
        """The gateway that few ask for."""
        return (self.smg,)

    def build_smg(self, progress: Progress) -> None:
        """Nothing to do when it is there."""
        if not self.smg.complete:
            with cache.installing(cache.cache_root(), progress):
                self.smg.build(lambda folder: _make_router("smg", folder, progress), progress)

    def version(self, version: str) -> Part:
        """One version's unpacked wheel; it is of this Python, for parts of it are compiled."""
        return Part(self.root / "versions" / version, f"sglang=={version} {this_python()}")

    def build_shared(self, progress: Progress) -> None:
        """The environments, then the model, which is made with the engine's."""
        self.router.build(lambda folder: _make_router("router", folder, progress), progress)
        self.deps.build(lambda folder: _make_deps(folder, progress), progress)
        self.model.build(lambda folder: self._make_model(folder, progress), progress)

    def _make_model(self, folder: Path, progress: Progress) -> None:
        command = [str(self.python), str(_HERE / "tiny_model.py"), str(folder)]
        cache.run(command, "making the tiny model", progress, {"PYTHONPATH": str(STANDINS), "HF_HUB_OFFLINE": "1"})

    def unpack(self, version: str, folder: Path, progress: Progress) -> None:
        """Into a folder: pip unpacks and compiles, and the shared environment stays free of any version."""
        what = f"sglang {version}"
        arguments = ["install", "--no-deps", "--only-binary=:all:", "--target", str(folder), f"sglang=={version}"]
        cache.pip(self.python, arguments, f"{what}: downloading and unpacking", progress)
        environment = {"PYTHONPATH": f"{STANDINS}:{folder}", "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}
        command = [str(self.python), "-W", "ignore", "-c", _IMPORTS]
        cache.run(command, f"{what}: importing what a lab runs", progress, environment)


def _make_router(name: str, folder: Path, progress: Progress) -> None:
    python = cache.make_venv(folder, progress)
    arguments = ["install", "--no-deps", "-r", str(_HERE / f"requirements-{name}.txt")]
    cache.pip(python, arguments, f"{name}: installing", progress)


def _make_deps(folder: Path, progress: Progress) -> None:
    python = cache.make_venv(folder, progress)
    try:
        cache.pip(python, ["install", "--no-deps", f"{_TORCH}+cpu"], "deps: torch, its CPU build", progress)
    except LabError:
        progress(
            "  the package index has no CPU build of torch; its default build is taken, which is several GB larger"
        )
        progress("  (interrupt, and add PyTorch's CPU index to pip's extra-index-url, to avoid that)")
    arguments = ["install", "-r", str(_HERE / "requirements.txt")]
    cpu = next(folder.glob("lib/python*/site-packages/torch-*+cpu.dist-info"), None)
    # the default build of torch needs NVIDIA's libraries, which are its dependencies; the CPU build needs none
    cache.pip(python, arguments if cpu is None else [*arguments, "--no-deps"], "deps: installing", progress)
