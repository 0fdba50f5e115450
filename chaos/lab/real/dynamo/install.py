"""Installs Dynamo versions: one environment with what all versions import, beside it each version's unpacked wheels.

deps/           virtual environment with everything but Dynamo itself, shared by all versions
model/          tiny model, made here
versions/1.6.1/ ai-dynamo and ai-dynamo-runtime as published, put on PYTHONPATH
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

TRIED = ("1.6.1",)
"""Versions that were run: one and two pairs came up, generated, were frozen and killed."""

_HERE = Path(__file__).parent
_NEEDED_BYTES = 800 * 1024**2
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}(?:\.?(?:post|rc|dev)[0-9]+)?")
_IMPORTS = "import dynamo.frontend, dynamo.mocker, dynamo.runtime"


class DynamoInstaller:
    """Where everything is, and how it gets there."""

    @property
    def root(self) -> Path:
        """The folder of all Dynamo versions."""
        return cache.cache_root() / "dynamo"

    @property
    def deps(self) -> Part:
        """What Dynamo imports."""
        return Part(self.root / "deps", _made_of("requirements.txt"))

    @property
    def model(self) -> Part:
        """The tiny model."""
        return Part(self.root / "model", _made_of("tiny_model.py"))

    def version(self, version: str) -> Part:
        """One version's unpacked wheels."""
        return Part(self.root / "versions" / version, f"ai-dynamo=={version} {_python()}")

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        return self.deps.folder / "bin" / "python"

    def install(self, version: str, progress: Progress) -> None:
        """Install a version; parts that are complete are kept."""
        if not _VERSION.fullmatch(version):
            raise UsageError(f"{version!r} is no version of Dynamo", hint=f"for example dynamo@{TRIED[0]}")
        cache.check_platform("Dynamo")
        with cache.installing(cache.cache_root(), progress):
            cache.check_disk(self.root, _NEEDED_BYTES)
            if version not in TRIED:
                tried = ", ".join(TRIED)
                progress(f"dynamo {version} is UNTRIED here (tried: {tried}); it may need other flags or packages")
            self.deps.build(lambda folder: _make_deps(folder, progress), progress)
            self.model.build(lambda folder: self._make_model(folder, progress), progress)
            self.version(version).build(lambda folder: self._unpack(version, folder, progress), progress)

    def _make_model(self, folder: Path, progress: Progress) -> None:
        cache.run([str(self.python), str(_HERE / "tiny_model.py"), str(folder)], "making the tiny model", progress)

    def _unpack(self, version: str, folder: Path, progress: Progress) -> None:
        what = f"dynamo {version}"
        wheels = [f"ai-dynamo=={version}", f"ai-dynamo-runtime=={version}"]
        # into a folder: the shared environment stays free of any version
        arguments = ["install", "--no-deps", "--only-binary=:all:", "--target", str(folder), *wheels]
        cache.pip(self.python, arguments, f"{what}: downloading and unpacking", progress)
        environment = {"PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
        cache.run([str(self.python), "-c", _IMPORTS], f"{what}: importing what a lab runs", progress, environment)

    def installed(self) -> list[Installed]:
        """Every version that is complete, its shared parts included; the size is the version's own."""
        if not all(part.complete for part in (self.deps, self.model)):
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
        return sum(cache.stamped_size(part.folder) or 0 for part in (self.deps, self.model))

    def require(self, version: str) -> None:
        """LabError unless a version is installed."""
        if version not in {each.version for each in self.installed()}:
            raise LabError(
                f"dynamo {version} is not installed in {self.root}", hint=f"pdchaos lab install dynamo@{version}"
            )

    def remove(self, version: str) -> None:
        """Remove a version; with the last one, what the versions share."""
        folder = self.version(version).folder
        versions = self.root / "versions"
        with cache.installing(cache.cache_root(), lambda _: None):
            if not _VERSION.fullmatch(version) or not folder.exists():
                there = ", ".join(each.name for each in sorted(versions.glob("*"))) or "none"
                raise UsageError(f"dynamo {version} is not installed", hint=f"installed: {there}")
            cache.discard(folder)
            if not any(versions.iterdir()):
                for part in (self.model, self.deps):
                    cache.discard(part.folder)
                shutil.rmtree(self.root)


def _make_deps(folder: Path, progress: Progress) -> None:
    python = cache.make_venv(folder, progress)
    arguments = ["install", "--no-deps", "-r", str(_HERE / "requirements.txt")]
    cache.pip(python, arguments, "deps: installing", progress)


def _made_of(name: str) -> str:
    return f"{hashlib.sha256((_HERE / name).read_bytes()).hexdigest()[:16]} {_python()}"


def _python() -> str:
    return f"python {sys.version_info.major}.{sys.version_info.minor}"


def _sort_key(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
