"""Commands of the host."""

from __future__ import annotations

import os
import shutil


def which(name: str) -> str | None:
    """Where a command is, also in the folders that an SSH session without a login shell may lack; None if nowhere."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(("/usr/sbin", "/sbin")))
