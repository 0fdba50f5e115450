"""Tools of the system, run to their end, in English."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from chaos.outpost.tools import which
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGES = {"nft": "nftables", "tc": "iproute2", "ip": "iproute2"}
TAKES_S = 15.0
"""A change of a rule takes milliseconds; a machine that starves needs longer."""


def need(tool: str) -> str:
    """Where a tool is. Raises Trouble, which says what to install."""
    path = which(tool)
    if path is None:
        package = f" (its package is called {PACKAGES[tool]})" if tool in PACKAGES else ""
        raise Trouble("missing", f"there is no {tool} on this host{package}")
    return path


def run(argv: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run it. Raises Trouble when it is not there or does not end."""
    try:
        return subprocess.run(
            [need(argv[0]), *argv[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TAKES_S,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Trouble("timeout", f"{argv[0]} did not end within {TAKES_S:g} s") from None
    except OSError as error:
        raise Trouble("missing", f"{argv[0]} cannot be run: {error.strerror}") from None


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The first line of what a tool complained of."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[0].strip() if lines else f"it ended with code {done.returncode}"
