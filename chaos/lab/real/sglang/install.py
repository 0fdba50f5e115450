"""Installs SGLang versions: one environment with what all versions import, beside it each version's unpacked wheel.

deps/            virtual environment with everything but SGLang itself, shared by all versions
router/          virtual environment of the router
model/           tiny model, made here
versions/0.5.14/ the wheel as published, put on PYTHONPATH after the stand-ins
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.lab.kinds import Installed
from chaos.lab.real import cache
from chaos.lab.real.cache import Part
from chaos.model.errors import LabError, UsageError

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
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}(?:\.?(?:post|rc|dev)[0-9]+)?")
_IMPORTS = (
    "import sglang.srt.entrypoints.http_server, sglang.srt.managers.scheduler,"
    " sglang.srt.disaggregation.prefill, sglang.srt.disaggregation.decode, sglang.srt.disaggregation.nixl.conn"
)


class SGLangInstaller:
    """Where everything is, and how it gets there."""

    @property
    def root(self) -> Path:
        """The folder of all SGLang versions."""
        return cache.cache_root() / "sglang"

    @property
    def deps(self) -> Part:
        """What the engine imports."""
        return Part(self.root / "deps", _made_of("requirements.txt"))

    @property
    def router(self) -> Part:
        """sglang-router."""
        return Part(self.root / "router", _made_of("requirements-router.txt"))

    @property
    def model(self) -> Part:
        """The tiny model."""
        return Part(self.root / "model", _made_of("tiny_model.py"))

    def version(self, version: str) -> Part:
        """One version's unpacked wheel; it is of this Python, for parts of it are compiled."""
        return Part(self.root / "versions" / version, f"sglang=={version} {_python()}")

    @property
    def python(self) -> Path:
        """The interpreter that runs the engine."""
        return self.deps.folder / "bin" / "python"

    # ------------------------------------------------------------------ installing

    def install(self, version: str, progress: Progress) -> None:
        """Install a version; parts that are complete are kept."""
        if not _VERSION.fullmatch(version):
            raise UsageError(f"{version!r} is no version of SGLang", hint=f"for example sglang@{TRIED[0]}")
        cache.check_platform("SGLang")
        with cache.installing(cache.cache_root(), progress):
            shared = self.deps.complete and self.router.complete
            cache.check_disk(self.root, _NEEDED_PER_VERSION_BYTES if shared else _NEEDED_BYTES)
            if version not in TRIED:
                tried = ", ".join(TRIED)
                progress(f"sglang {version} is UNTRIED here (tried: {tried}); it may need other flags or packages")
            self.router.build(lambda folder: _make_router(folder, progress), progress)
            self.deps.build(lambda folder: _make_deps(folder, progress), progress)
            self.model.build(lambda folder: self._make_model(folder, progress), progress)
            self.version(version).build(lambda folder: self._unpack(version, folder, progress), progress)

    def _make_model(self, folder: Path, progress: Progress) -> None:
        command = [str(self.python), str(_HERE / "tiny_model.py"), str(folder)]
        cache.run(command, "making the tiny model", progress, {"PYTHONPATH": str(STANDINS), "HF_HUB_OFFLINE": "1"})

    def _unpack(self, version: str, folder: Path, progress: Progress) -> None:
        what = f"sglang {version}"
        # into a folder: pip unpacks and compiles, and the shared environment stays free of any version
        arguments = ["install", "--no-deps", "--only-binary=:all:", "--target", str(folder), f"sglang=={version}"]
        cache.pip(self.python, arguments, f"{what}: downloading and unpacking", progress)
        environment = {"PYTHONPATH": f"{STANDINS}:{folder}", "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}
        command = [str(self.python), "-W", "ignore", "-c", _IMPORTS]
        cache.run(command, f"{what}: importing what a lab runs", progress, environment)

    # ------------------------------------------------------------------ what is there

    def installed(self) -> list[Installed]:
        """Every version that is complete, its shared parts included; the size is the version's own."""
        if not all(part.complete for part in (self.deps, self.router, self.model)):
            return []
        folders = sorted((self.root / "versions").glob("*"), key=lambda each: _sort_key(each.name))
        return [
            Installed(folder.name, folder, cache.stamped_size(folder) or 0)
            for folder in folders
            if self.version(folder.name).complete
        ]

    @property
    def shared_bytes(self) -> int:
        """What all versions share."""
        return sum(cache.stamped_size(part.folder) or 0 for part in (self.deps, self.router, self.model))

    def require(self, version: str) -> None:
        """UsageError unless a version is installed."""
        if version not in {each.version for each in self.installed()}:
            raise UsageError(
                f"sglang {version} is not installed in {self.root}", hint=f"pdchaos lab install sglang@{version}"
            )

    def remove(self, version: str) -> None:
        """Remove a version; with the last one, what the versions share."""
        folder = self.version(version).folder
        versions = self.root / "versions"
        with cache.installing(cache.cache_root(), lambda _: None):
            if not _VERSION.fullmatch(version) or not folder.exists():
                there = ", ".join(each.name for each in sorted(versions.glob("*"))) or "none"
                raise UsageError(f"sglang {version} is not installed", hint=f"installed: {there}")
            cache.discard(folder)
            if not any(versions.iterdir()):
                for part in (self.model, self.deps, self.router):
                    cache.discard(part.folder)
                shutil.rmtree(self.root)


def _make_router(folder: Path, progress: Progress) -> None:
    python = cache.make_venv(folder, progress)
    arguments = ["install", "--no-deps", "-r", str(_HERE / "requirements-router.txt")]
    cache.pip(python, arguments, "router: installing", progress)


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


def _made_of(name: str) -> str:
    return f"{hashlib.sha256((_HERE / name).read_bytes()).hexdigest()[:16]} {_python()}"


def _python() -> str:
    return f"python {sys.version_info.major}.{sys.version_info.minor}"


def _sort_key(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
