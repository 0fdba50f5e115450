"""Builds what runs elsewhere into one file that needs nothing but Python: the agent, the outpost, and h11.

`python FILE WORD`: `agent` (also without a word), `outpost`, `guard`, `relay`. The same sources give the same bytes.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import zipfile
from pathlib import Path

from chaos.model.errors import HarnessError

_EPOCH = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
_PARTS = ("agent", "outpost")
_MAIN = b"""\
import sys

if len(sys.argv) > 1 and sys.argv[1] != "agent":
    from chaos.outpost.__main__ import main
else:
    from chaos.agent.main import main
sys.exit(main())
"""


def build_pyz(dest: Path) -> Path:
    """Write the archive to `dest`, atomically. LookupError without h11, HarnessError without room."""
    scratch = dest.with_name(f"{dest.name}.{os.getpid()}")
    try:
        scratch.write_bytes(pyz_bytes())
        scratch.chmod(0o755)
        scratch.replace(dest)
    except OSError as error:
        raise HarnessError(f"{dest}: cannot be written: {error.strerror}") from None
    return dest


def pyz_bytes() -> bytes:
    """The archive."""
    contents = {"__main__.py": _MAIN}
    # A regular package, so that no other `chaos` on the host's path is found first.
    contents["chaos/__init__.py"] = b""
    for part in _PARTS:
        for source in (Path(__file__).parents[1] / part).glob("*.py"):
            contents[f"chaos/{part}/{source.name}"] = source.read_bytes()
    contents.update(_h11())
    file = io.BytesIO(_SHEBANG)
    file.seek(0, io.SEEK_END)
    # Stored, not deflated: compressors differ between builds of zlib.
    with zipfile.ZipFile(file, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(contents):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, contents[name])
    return file.getvalue()


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
