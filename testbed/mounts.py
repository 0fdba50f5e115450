"""A host's own file systems: where a machine writes it has a small disk of its own, everything else cannot be written.

A laptop has this machine's files, but for what pdchaos keeps about the machine it runs on: beds are not to meet there.

The interpreter and this repository may themselves lie below a folder that is hidden so (a checkout in /tmp, a Python
in /root); they are put back at the same path.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.folder import HERE, LOGS, REPOSITORY, SHARED, HostFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PRIVATE = tuple(map(Path, ("/tmp", "/var/tmp", "/run", "/dev/shm", "/root", "/home", "/var/log")))  # noqa: S108, a host's
OF_LAPTOP = tuple(map(Path, ("/run", "/dev/shm")))  # noqa: S108, as above
_LAPTOP_MB = 512
_MODES = {"/root": "0700", "/tmp": "1777", "/var/tmp": "1777", "/dev/shm": "1777"}  # noqa: S108, as above
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
SUDOER, GUEST = "ops", "guest"
USERS = {SUDOER: 20077, GUEST: 20078}
"""They may log in by the same key as root; the one may use sudo, where that is installed, the other nothing."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_ETC = ("passwd", "group", "shadow", "hosts", "hostname", "sudoers")


def _mount(source: str, target: Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    status = _LIBC.mount(source.encode(), str(target).encode(), kind.encode(), flags, data.encode())
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind or 'bind'} {source}: {os.strerror(number)}", str(target))


def make_private(folder: HostFolder, *, disk_mb: int, shared: Path, keep: Iterable[str] = ()) -> None:
    """Give this mount namespace the host's own file systems; `keep`: what else of the machine is needed."""
    own, share = os.open(folder.path, os.O_PATH), os.open(shared, os.O_PATH)
    _hide(PRIVATE, disk_mb, keep)
    _bind(own, HERE)
    _bind(share, SHARED)
    logs = os.open(HERE / "log", os.O_PATH)
    _bind(logs, LOGS)
    for fd in (own, share, logs):
        os.close(fd)
    for user, number in USERS.items():
        home = Path("/home", user)
        home.mkdir()
        os.chown(home, number, number)
    here = HostFolder(HERE)
    for name in _ETC:
        if (here.etc / name).exists() and Path("/etc", name).exists():
            _mount(str(here.etc / name), Path("/etc", name), flags=_BIND)
    _mount("none", Path("/"), flags=_REMOUNT | _BIND | _RDONLY)
    _mount("proc", Path("/proc"), "proc", _NOSUID | _NODEV)
    _mount("sysfs", Path("/sys"), "sysfs", _NOSUID | _NODEV)


def make_laptop() -> None:
    """Give the laptop's mount namespace what a machine keeps until it is switched off; all else is this machine's."""
    _hide(OF_LAPTOP, _LAPTOP_MB)


def _hide(folders: Sequence[Path], disk_mb: int, keep: Iterable[str] = ()) -> None:
    """Mount an empty disk over each folder, and put back what is needed and was below one of them."""
    _mount("none", Path("/"), flags=_REC | _PRIVATE)
    below = [path for path in _needed(keep) if any(folder in path.parents for folder in folders)]
    held = [(path, os.open(path, os.O_PATH)) for path in below]
    for folder in folders:
        _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, f"size={disk_mb}m,mode={_MODES.get(str(folder), '0755')}")
    for path, fd in held:
        _bind(fd, path)
        os.close(fd)


def _bind(fd: int, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _mount(f"/proc/self/fd/{fd}", target, flags=_BIND | _REC)


def _needed(more: Iterable[str]) -> list[Path]:
    """The repository, the environment and the interpreter behind it, outermost first and none within another."""
    found = {REPOSITORY, *(Path(path).resolve() for path in (sys.prefix, sys.base_prefix, *more))}
    return [path for path in sorted(found) if not any(other in path.parents for other in found)]


def write_etc(folder: HostFolder, name: str, hosts: dict[str, str]) -> None:
    """The host's versions of files in /etc: two users more, every host's name. Called before the host starts."""
    more = {
        "passwd": [f"{user}:x:{number}:{number}::/home/{user}:/bin/sh\n" for user, number in USERS.items()],
        "group": [f"{user}:x:{number}:\n" for user, number in USERS.items()],
        "shadow": [f"{user}:*:19000:0:99999:7:::\n" for user in USERS],
    }
    for file, lines in more.items():
        (folder.etc / file).write_text(Path("/etc", file).read_text().rstrip("\n") + "\n" + "".join(lines))
    (folder.etc / "shadow").chmod(0o600)
    (folder.etc / "sudoers").write_text(f"root ALL=(ALL) ALL\n{SUDOER} ALL=(ALL) NOPASSWD: ALL\n")
    (folder.etc / "sudoers").chmod(0o440)
    known = "".join(f"{address} {each}\n" for each, address in hosts.items())
    (folder.etc / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
    (folder.etc / "hostname").write_text(f"{name}\n")
