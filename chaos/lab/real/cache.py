"""Where installed engines live, and how a part of an installation is made so that it is never half-used.

A *part* is a folder that is built once: a virtual environment, an unpacked wheel, a model. What an interrupted build
left is thrown away and built again (pip keeps its downloads); the stamp that makes a part usable is written last and
says what the part was made of, so that a part of other pins is built anew. One lock keeps two installations apart,
another keeps a part from being removed while a lab runs on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from chaos.lab.real.warden import die_with_parent
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Progress = Callable[[str], None]

FOLDER_VARIABLE = "PDCHAOS_LABS"
STAMP = ".complete.json"
_LOCK = ".lock"
_IN_USE = ".in-use"
_GIB = 1024**3
_MISLEADING = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PIP_TARGET"})
_STILL_EVERY_S = 20.0  # a progress line at least this often
_TAIL_LINES = 12


def cache_root() -> Path:
    """`$PDCHAOS_LABS`, else `pdchaos/labs` in the user's cache folder."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pdchaos" / "labs"


# ------------------------------------------------------------------------------------------------ parts


@dataclass(frozen=True, slots=True)
class Part:
    """A folder of an installation, and what it is made of (in words that change when it must be built anew)."""

    folder: Path
    made_of: str

    @property
    def complete(self) -> bool:
        """Whether it is there, whole, and made of what it should be."""
        return _stamp(self.folder).get("made_of") == self.made_of

    def build(self, make: Callable[[Path], None], progress: Progress) -> None:
        """Build it unless it is complete; `make` fills the folder, which exists and is empty."""
        if self.complete:
            progress(f"{self.folder.name}: is there")
            return
        if self.folder.exists():
            progress(f"{self.folder.name}: what an earlier installation left is replaced")
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        began = time.monotonic()
        make(self.folder)
        size = folder_size(self.folder)
        draft = self.folder / f"{STAMP}.tmp"
        draft.write_text(json.dumps({"made_of": self.made_of, "size_bytes": size}))
        draft.replace(self.folder / STAMP)
        progress(f"{self.folder.name}: done, {describe_size(size)}, {time.monotonic() - began:.0f} s")


def _stamp(folder: Path) -> dict[str, object]:
    try:
        read = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def stamped_size(folder: Path) -> int | None:
    """The size of a complete part as it was when built; None for anything else."""
    size = _stamp(folder).get("size_bytes")
    return size if isinstance(size, int) else None


def folder_size(folder: Path) -> int:
    """Bytes on disk of everything below a folder."""
    total = 0
    for at, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(at, name)).st_blocks * 512  # noqa: PTH118, 50 000 files
    return total


def describe_size(size: int) -> str:
    """`3.5 GiB`, `12 MiB`."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 1024**2:.0f} MiB"


def discard(folder: Path) -> None:
    """Remove a part; LabError when a lab runs on it."""
    if not folder.exists():
        return
    with _locked(folder / _IN_USE, fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
        if held is None:
            raise LabError(f"{folder} is in use by a lab that runs", hint="end that lab first")
        (folder / STAMP).unlink(missing_ok=True)  # from here on it is not half-usable
        shutil.rmtree(folder)


# ------------------------------------------------------------------------------------------------ locks


@contextlib.contextmanager
def installing(root: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of the cache folder; waits for another installation."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / _LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
            if held is not None:
                yield
                return
        progress(f"another pdchaos installs into {root}; waiting for it")
        with _locked(root / _LOCK, fcntl.LOCK_EX):
            yield
    except OSError as error:
        raise LabError(
            f"{error.filename or root}: {error.strerror}", hint=f"{FOLDER_VARIABLE}=… names another folder"
        ) from error


def use(folder: Path) -> IO[bytes]:
    """Keep a part from being removed until the returned file is closed; LabError when it cannot be used."""
    try:
        file = (folder / _IN_USE).open("ab")
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        raise LabError(f"{folder} cannot be used: {error.strerror}", hint="is it being removed?") from error
    return file


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[IO[bytes] | None]:
    with path.open("ab") as file:
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            yield None
        else:
            yield file


# ------------------------------------------------------------------------------------------------ what the machine has


def check_disk(root: Path, needed_bytes: int) -> None:
    """LabError when the file system has less room than an installation takes."""
    there = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed_bytes:
        raise LabError(
            f"{root} has {describe_size(free)} of free space, {describe_size(needed_bytes)} are needed",
            hint=f"{FOLDER_VARIABLE}=… names another folder",
        )


def check_platform(what: str) -> None:
    """LabError where the wheels of an engine do not exist."""
    machine, system, (libc, _) = platform.machine(), platform.system(), platform.libc_ver()
    if (system, machine, libc) != ("Linux", "x86_64", "glibc"):
        found = " ".join(filter(None, (system, machine, libc)))
        raise LabError(f"{what} can be installed on Linux, x86_64, glibc; this machine is {found}")


# ------------------------------------------------------------------------------------------------ pip


def make_venv(folder: Path, progress: Progress) -> Path:
    """A fresh virtual environment of this Python; its interpreter."""
    run([sys.executable, "-m", "venv", str(folder)], "making a virtual environment", progress)
    return folder / "bin" / "python"


def pip(python: Path, arguments: Sequence[str], what: str, progress: Progress) -> None:
    """`python -m pip ...`; LabError with the end of what it said when it fails."""
    base = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color"]
    run([*base, arguments[0], "--progress-bar=off", *arguments[1:]], what, progress)


def run(command: Sequence[str], what: str, progress: Progress, environment: Mapping[str, str] | None = None) -> None:
    """Run a program of an installation, telling what it does; LabError with the end of its output when it fails."""
    progress(f"{what} …")
    lines: list[str] = []
    with subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**_plain_environment(), **(environment or {})},
        # an orphan would go on writing into a folder that the next installation replaces
        preexec_fn=die_with_parent,  # noqa: PLW1509, no other thread of ours runs now
    ) as process:
        try:
            with _still_there(what, progress):
                for line in process.stdout or ():
                    lines.append(line.rstrip())
                    if told := _worth_telling(lines[-1]):
                        progress(f"  {told}")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        tail = "\n".join(lines[-_TAIL_LINES:])
        raise LabError(f"{what} failed (exit code {process.returncode})\n{tail}", hint=_cure(tail))


def _plain_environment() -> dict[str, str]:
    """Ours without what would lead another Python to our packages, or keep it from compiling its own."""
    ours = {
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "PYTHONDONTWRITEBYTECODE",
        "PIP_REQUIRE_VIRTUALENV",
        "PIP_TARGET",
    }
    return {name: value for name, value in os.environ.items() if name not in ours}


def _worth_telling(line: str) -> str:
    """Big downloads and the long step at the end; the rest of pip's talk is for the error message only."""
    found = re.match(r"\s*Downloading (\S+) \((\d{2,}(?:\.\d+)? MB|\S+ GB)\)", line)
    if found:
        return f"{found[1].rpartition('/')[2]} {found[2]}"
    return "installing what was downloaded" if line.startswith("Installing collected packages") else ""


def _cure(tail: str) -> str:
    if "ensurepip" in tail:
        return "apt-get install python3-venv"
    if "No space left" in tail:
        return f"{FOLDER_VARIABLE}=… names another folder; TMPDIR=… another one for pip"
    return "run the command again: what is complete is kept"


@contextlib.contextmanager
def _still_there(what: str, progress: Progress) -> Iterator[None]:
    """A sign of life while something takes long."""
    ended, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(_STILL_EVERY_S):
            progress(f"  {what}: {time.monotonic() - began:.0f} s so far")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
