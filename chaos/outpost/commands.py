"""Tools of the system, run to their end: found also where an SSH session's PATH does not have them, and in English."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

SYSTEM = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")
"""Where tools for the network are; a session that is no login often has no sbin in its PATH."""
TAKES_S = 15.0
"""A change of a rule takes milliseconds; a machine that starves needs longer."""


def find(tool: str) -> str | None:
    """The path of a tool; None when there is none."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *SYSTEM))
    return shutil.which(tool, path=path)


def need(tool: str, package: str) -> str:
    """The path of a tool. Raises Trouble, which says what to install."""
    path = find(tool)
    if path is None:
        raise Trouble("missing", f"there is no {tool} on this host (its package is called {package})")
    return path


def run(argv: Sequence[str], stdin: str = "", timeout_s: float = TAKES_S) -> subprocess.CompletedProcess[str]:
    """Run it. Raises Trouble when it cannot be started or does not end."""
    try:
        return subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Trouble("timeout", f"{argv[0]} did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise Trouble("missing", f"{argv[0]} cannot be run: {error.strerror}") from None


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The first line of what a tool complained of."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[0].strip() if lines else f"it ended with code {done.returncode}"
