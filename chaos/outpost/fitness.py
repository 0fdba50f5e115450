"""What a host has that we could use: the rights of our user, tools, Python modules."""

from __future__ import annotations

import importlib.util
import os
import platform
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost.stacks import py_spy
from chaos.outpost.tools import which

if TYPE_CHECKING:
    from collections.abc import Sequence


def fitness(programs: Sequence[str] = (), modules: Sequence[str] = ()) -> dict[str, Any]:
    """Our user's number, the version of Python, and which of these programs and modules are missing."""
    return {
        "uid": os.getuid(),
        "python": platform.python_version(),
        "missing": [
            *(name for name in programs if (py_spy() if name == "py-spy" else which(name)) is None),
            *(name for name in modules if importlib.util.find_spec(name) is None),
        ],
    }


OPS: dict[str, Callable[..., object]] = {"fitness": fitness}
