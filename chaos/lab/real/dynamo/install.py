"""Installs Dynamo versions.

deps/           virtual environment with everything but Dynamo itself
model/          tiny model, made here
versions/1.6.1/ ai-dynamo and ai-dynamo-runtime as published
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chaos.lab.real import cache
from chaos.lab.real.cache import Part
from chaos.lab.real.versions import VersionedInstaller, made_of, this_python

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str], None]

TRIED = ("1.6.1",)
"""Versions that were run: one and two pairs came up, generated, were frozen and killed."""

_HERE = Path(__file__).parent
_REQUIREMENTS, _TINY_MODEL = _HERE / "requirements.txt", _HERE / "tiny_model.py"
_NEEDED_BYTES = 800 * 1024**2  # 350 MB stay
_IMPORTS = "import dynamo.frontend, dynamo.mocker, dynamo.runtime"


class DynamoInstaller(VersionedInstaller):
    """Where Dynamo is, and how it gets there."""

    name = "dynamo"
    title = "Dynamo"
    tried = TRIED
    shared_need_bytes = version_need_bytes = _NEEDED_BYTES

    @property
    def deps(self) -> Part:
        """What Dynamo imports."""
        return Part(self.root / "deps", made_of(_REQUIREMENTS))

    @property
    def model(self) -> Part:
        """The tiny model."""
        return Part(self.root / "model", made_of(_TINY_MODEL))

    @property
    def shared(self) -> tuple[Part, ...]:
        """Environment and model."""
        return (self.deps, self.model)

    def version(self, version: str) -> Part:
        """One version's unpacked wheels."""
        return Part(self.root / "versions" / version, f"ai-dynamo=={version} {this_python()}")

    def build_shared(self, progress: Progress) -> None:
        """The environment, then the model, which is made with it."""
        self.deps.build(lambda folder: _make_deps(folder, progress), progress)
        self.model.build(lambda folder: self._make_model(folder, progress), progress)

    def _make_model(self, folder: Path, progress: Progress) -> None:
        cache.run([str(self.python), str(_TINY_MODEL), str(folder)], "making the tiny model", progress)

    def unpack(self, version: str, folder: Path, progress: Progress) -> None:
        """Into a folder: the shared environment stays free of any version."""
        what = f"dynamo {version}"
        wheels = [f"ai-dynamo=={version}", f"ai-dynamo-runtime=={version}"]
        arguments = ["install", "--no-deps", "--only-binary=:all:", "--target", str(folder), *wheels]
        cache.pip(self.python, arguments, f"{what}: downloading and unpacking", progress)
        environment = {"PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
        cache.run([str(self.python), "-c", _IMPORTS], f"{what}: importing what a lab runs", progress, environment)


def _make_deps(folder: Path, progress: Progress) -> None:
    python = cache.make_venv(folder, progress)
    cache.pip(python, ["install", "--no-deps", "-r", str(_REQUIREMENTS)], "deps: installing", progress)
