"""Installs versions of one engine: parts that all versions share, and beside them each version's unpacked wheels.

deps/ …          virtual environments and what else all versions share, each a part
versions/1.2.3/  the wheels as published, put on PYTHONPATH
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from chaos.lab.kinds import Installed
from chaos.lab.real import cache
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chaos.lab.real.cache import Part

    Progress = Callable[[str], None]

_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}(?:\.?(?:post|rc|dev)[0-9]+)?")


class VersionedInstaller(ABC):
    """Where everything of one engine is, and how it gets there."""

    name: ClassVar[str]  # what stands before the @
    title: ClassVar[str]  # for people
    tried: ClassVar[tuple[str, ...]]
    shared_need_bytes: ClassVar[int]  # of disk, while everything is installed
    version_need_bytes: ClassVar[int]  # while a version is added

    @property
    def root(self) -> Path:
        """The folder of all versions."""
        return cache.cache_root() / self.name

    @property
    @abstractmethod
    def deps(self) -> Part:
        """The virtual environment of what the engine imports."""

    @property
    def python(self) -> Path:
        """The interpreter that runs the engine."""
        return self.deps.folder / "bin" / "python"

    @property
    @abstractmethod
    def shared(self) -> tuple[Part, ...]:
        """What all versions share, in the order in which it is built."""

    @property
    def on_demand(self) -> tuple[Part, ...]:
        """Of what all versions share, what is built when first it is needed."""
        return ()

    @abstractmethod
    def version(self, version: str) -> Part:
        """One version's unpacked wheels; they are of this Python, for parts of them are compiled."""

    @abstractmethod
    def build_shared(self, progress: Progress) -> None:
        """Build what all versions share; parts that are complete are kept."""

    @abstractmethod
    def unpack(self, version: str, folder: Path, progress: Progress) -> None:
        """Fill a version's folder."""

    # ------------------------------------------------------------------ for everybody

    def install(self, version: str, progress: Progress) -> None:
        """Install a version; parts that are complete are kept."""
        if not _VERSION.fullmatch(version):
            hint = f"for example {self.name}@{self.tried[0]}"
            raise UsageError(f"{version!r} is no version of {self.title}", hint=hint)
        cache.check_platform(self.title)
        with cache.installing(cache.cache_root(), progress):
            whole = all(part.complete for part in self.shared)
            cache.check_disk(self.root, self.version_need_bytes if whole else self.shared_need_bytes)
            if version not in self.tried:
                tried = ", ".join(self.tried)
                progress(f"{self.name} {version} is UNTRIED here (tried: {tried}); it may need other flags or packages")
            self.build_shared(progress)
            self.version(version).build(lambda folder: self.unpack(version, folder, progress), progress)

    def installed(self) -> list[Installed]:
        """Every version that is complete, its shared parts included; the size is the version's own."""
        if not all(part.complete for part in self.shared):
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
        return sum(cache.stamped_size(part.folder) or 0 for part in (*self.shared, *self.on_demand))

    def require(self, version: str) -> None:
        """UsageError unless a version is installed."""
        if version not in {each.version for each in self.installed()}:
            raise UsageError(
                f"{self.name} {version} is not installed in {self.root}",
                hint=f"pdchaos lab install {self.name}@{version}",
            )

    def remove(self, version: str) -> None:
        """Remove a version; with the last one, what the versions share."""
        folder = self.version(version).folder
        versions = self.root / "versions"
        with cache.installing(cache.cache_root(), lambda _: None):
            if not _VERSION.fullmatch(version) or not folder.exists():
                there = ", ".join(each.name for each in sorted(versions.glob("*"))) or "none"
                raise UsageError(f"{self.name} {version} is not installed", hint=f"installed: {there}")
            cache.discard(folder)
            if not any(versions.iterdir()):
                for part in reversed((*self.shared, *self.on_demand)):
                    cache.discard(part.folder)
                shutil.rmtree(self.root)


def made_of(file: Path) -> str:
    """What a part is made of that follows from one of our files and this Python."""
    return f"{hashlib.sha256(file.read_bytes()).hexdigest()[:16]} {this_python()}"


def this_python() -> str:
    """`python 3.11`."""
    return f"python {sys.version_info.major}.{sys.version_info.minor}"


def _sort_key(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
