"""What a released engine is as a kind of lab: versions that are installed, settings, and the lab that runs them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from chaos.lab.kinds import LabSpec, Sizes
from chaos.lab.options import read_options
from chaos.lab.real.versions import VersionedInstaller
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chaos.lab.kinds import LabInfo
    from chaos.lab.real.cache import Part

_Settings_co = TypeVar("_Settings_co", bound=Sizes, covariant=True)
_Installer_co = TypeVar("_Installer_co", bound=VersionedInstaller, covariant=True)
_Spec = TypeVar("_Spec", bound=LabSpec)


@dataclass(frozen=True)
class RealSpec(LabSpec, Generic[_Settings_co, _Installer_co]):
    """A version with options."""

    kind: str
    build: str
    settings: _Settings_co
    installer: _Installer_co

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """What of the installation is used."""


@dataclass(frozen=True)
class RealKind(Generic[_Settings_co, _Installer_co, _Spec]):
    """The kind; `listed` names everything that is not the untouched engine."""

    listed: LabInfo
    settings: type[_Settings_co]
    installer: _Installer_co
    spec: Callable[[str, str, _Settings_co, _Installer_co], _Spec]

    @property
    def name(self) -> str:
        """What stands before the @."""
        return self.listed.name

    def info(self) -> LabInfo:
        """Tried versions and options."""
        return self.listed

    def parse(self, build: str, options: Mapping[str, str]) -> _Spec:
        """`NAME@VERSION`."""
        if not build:
            hint = f"for example lab:{self.name}@{self.installer.tried[0]}"
            raise UsageError(f"lab {self.name} needs a version", hint=hint)
        return self.spec(self.name, build, read_options(self.name, self.settings, options), self.installer)
