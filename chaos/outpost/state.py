"""Where a host keeps what must survive the death of all of us: small JSON files in folders that are gone when empty.

Two folders, because two readers: what stands on this host (`private_folder`) is for whoever heals it, one user; who
uses a deployment (`shared_folder`) must be seen by every user of the host.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from chaos.outpost.trouble import Trouble

PRIVATE = ("/run/pdchaos", "/dev/shm/pdchaos-{uid}", "/tmp/pdchaos-{uid}")  # noqa: S108 - checked to be ours
"""In order of preference; a boot clears the first two."""
SHARED = ("/dev/shm/pdchaos-locks", "/tmp/pdchaos-locks")  # noqa: S108 - no secret is in it
"""Every user of a host must meet in the same one, so which it is depends on the host alone."""
LARGEST = 1_000_000


def private_folder() -> Path:
    """The folder of this user's records, made if need be (mode 0700). Raises Trouble where there can be none."""
    why = ""
    for path in _private():
        try:
            path.mkdir(0o700)
        except FileExistsError:
            pass
        except OSError as error:
            why = f"{path}: {error.strerror}"
            continue
        if not _is_ours(path):
            why = f"{path} belongs to somebody else"
        elif os.access(path, os.W_OK | os.X_OK):
            path.chmod(0o700)
            return path
        else:
            why = f"{path} cannot be written"
    raise Trouble("no-state", f"no folder for records on this host: {why}")


def private_folders() -> list[Path]:
    """Those of them that are there and ours, for whoever looks for leftovers."""
    return [path for path in _private() if _is_ours(path)]


def shared_folder() -> Path:
    """The folder that all users of this host share, made if need be. Raises Trouble where there can be none."""
    path = next((Path(one) for one in SHARED if Path(one).parent.is_dir()), None)
    if path is None:
        raise Trouble("no-state", "this host has neither /dev/shm nor /tmp")
    try:
        path.mkdir()
        path.chmod(0o777)  # not sticky: whoever takes over what somebody else let expire removes it
    except FileExistsError:
        pass
    except OSError as error:
        raise Trouble("no-state", f"{path}: {error.strerror}") from None
    if not stat.S_ISDIR(path.lstat().st_mode) or not os.access(path, os.W_OK | os.X_OK):
        raise Trouble("no-state", f"{path} is no folder that this user can write into")
    return path


def write(path: Path, value: dict[str, Any], mode: int = 0o600) -> None:
    """Write a file whole or not at all; the one before gives way. Raises Trouble."""
    try:
        handle, new = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(value, file)
                file.flush()
                os.fchmod(handle, mode)
            Path(new).rename(path)
        except BaseException:
            Path(new).unlink()
            raise
    except OSError as error:
        raise Trouble("no-state", f"{path} cannot be written: {error.strerror}") from None


def read(path: Path) -> dict[str, Any] | None:
    """A file's value; None when it is not there or holds nothing that we wrote. A link is not followed."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            value = json.loads(file.read(LARGEST))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def remove(path: Path) -> None:
    """Remove a file if it is there, and its folder when that was the last one. Raises Trouble."""
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Trouble("denied", f"{path} cannot be removed: {error.strerror}") from None
    tidy(path.parent)


def tidy(folder: Path) -> None:
    """Remove the folder if it is empty; of a shared one only its maker can, and others leave it."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EPERM, errno.EACCES):
            raise Trouble("denied", f"{folder} cannot be removed: {error.strerror}") from None


def _private() -> list[Path]:
    return [Path(one.format(uid=os.getuid())) for one in PRIVATE]


def _is_ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
