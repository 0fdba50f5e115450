"""Which SGLang versions can be tested: those that are installed, and those that PDCHAOS_REAL names, which are then
installed: `PDCHAOS_REAL=sglang@0.5.14,sglang@0.5.16`."""  # noqa: D205, D209

from __future__ import annotations

import os
from functools import cache

import pytest

from chaos.lab.real.sglang.install import TRIED, SGLangInstaller

NAMED = tuple(
    name.strip().removeprefix("sglang@")
    for name in os.environ.get("PDCHAOS_REAL", "").split(",")
    if name.strip().startswith("sglang@")
)
VERSIONS = (*TRIED, *(version for version in NAMED if version not in TRIED))


@cache
def installer_with(version: str) -> SGLangInstaller:
    """The installer, once the version is there; skips the test where nobody asked for it."""
    installer = SGLangInstaller()
    if version not in {each.version for each in installer.installed()}:
        if version not in NAMED:
            pytest.skip(f"sglang {version} is not installed, and PDCHAOS_REAL does not name it")
        installer.install(version, print)
    return installer
