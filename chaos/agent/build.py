"""Builds the agent into one runnable file that needs nothing but Python; the same sources give the same bytes."""

from __future__ import annotations

import importlib.metadata
import os
import zipfile
from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
_LEFT_OUT = ("build.py",)  # only needed here


def build_pyz(dest: Path) -> Path:
    """Write the agent with h11 bundled to `dest`, atomically; LookupError when h11 is not installed here."""
    here = Path(__file__).parent
    contents: dict[str, bytes] = {
        "__main__.py": (here / "__main__.py").read_bytes(),
        # A regular package, so that no other `chaos` on the host's path is found first.
        "chaos/__init__.py": b"",
    }
    for source in here.glob("*.py"):
        if source.name not in _LEFT_OUT:
            contents[f"chaos/agent/{source.name}"] = source.read_bytes()
    contents.update(_h11())
    scratch = dest.with_name(f"{dest.name}.{os.getpid()}")
    with scratch.open("wb") as file:
        file.write(_SHEBANG)
        # Stored, not deflated: compressors differ between builds of zlib.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(contents):
                info = zipfile.ZipInfo(name, _EPOCH)
                info.external_attr = 0o644 << 16
                info.create_system = 3
                archive.writestr(info, contents[name])
    scratch.chmod(0o755)
    scratch.replace(dest)
    return dest


def _h11() -> dict[str, bytes]:
    distribution = importlib.metadata.distribution("h11")
    contents = {}
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if file.parts[0] == "h11" and file.suffix == ".py":
            contents[file.as_posix()] = source.read_bytes()
        elif "LICENSE" in file.name.upper():
            contents[f"h11/{file.name}"] = source.read_bytes()
    if "h11/__init__.py" not in contents:
        raise LookupError("the installed h11 lists no sources")
    return contents
