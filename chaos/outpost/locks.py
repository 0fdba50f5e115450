"""One run at a time: a lock file for each server of a deployment, on the host where the server is.

A lock is alive while its time has not run out and the process that holds it lives: our own on this machine, the outpost
elsewhere, which ends soon after the run does. What is dead is taken over. Locks are in a folder that every user of the
host sees, and every change is made under the folder's own `flock`, so of two runs that begin together one wins.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost import marks, state
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_S = 5.0
"""How long others may keep the folder to themselves; a change takes well under a millisecond."""
POLL_S = 0.01
_SEEN_BY_ALL = 0o644

_held: dict[str, set[str]] = {}  # by run: what this process holds, given back when it ends


def take(
    keys: list[str], run: str, owner: str, ttl_s: float, *, target: str = "", steal: bool = False
) -> dict[str, Any]:
    """Take the locks of some servers, all or none.

    Gives `held`: the live locks of other runs that are in the way (then nothing was taken), and `over`: dead or stolen
    ones that gave way.
    """
    with _folder() as folder:
        there = {key: lock for key in keys if (lock := _read(folder, key)) and lock.get("run") != run}
        live = [lock for lock in there.values() if _lives(lock)]
        if live and not steal:
            return {"held": [_told(lock) for lock in live], "over": []}
        for key in keys:
            _put(folder, key, run, owner, ttl_s, target)
    return {"held": [], "over": [_told(lock) for lock in there.values()]}


def renew(keys: list[str], run: str, owner: str, ttl_s: float, *, target: str = "") -> dict[str, Any]:
    """Hold them for longer, also those that vanished meanwhile. Gives `lost`: those that another run holds now."""
    lost = []
    with _folder() as folder:
        for key in keys:
            lock = _read(folder, key)
            if lock and lock.get("run") != run and _lives(lock):
                lost.append(_told(lock))
            else:
                _put(folder, key, run, owner, ttl_s, target)
    return {"lost": lost}


def release(keys: list[str], run: str) -> None:
    """Give back what the run holds of them."""
    with _folder() as folder:
        for key in keys:
            lock = _read(folder, key)
            if lock and lock.get("run") == run:
                state.remove(_path(folder, key))
    _held.get(run, set()).difference_update(keys)


def seen(keys: list[str] | None = None) -> list[dict[str, Any]]:
    """The locks of these servers, or of all whose host this is; dead ones too."""
    with _folder() as folder:
        wanted = sorted(path.stem for path in folder.glob("*.json")) if keys is None else keys
        found = [_read(folder, key) for key in wanted]
    return [_told(lock) for lock in found if lock]


def clear(keys: list[str], *, steal: bool = False) -> list[dict[str, Any]]:
    """Remove the dead ones of these locks, with `steal` the live ones, too; gives those that were removed."""
    gone = []
    with _folder() as folder:
        for key in keys:
            lock = _read(folder, key)
            if lock and (steal or not _lives(lock)):
                state.remove(_path(folder, key))
                gone.append(_told(lock))
    return gone


def _put(folder: Path, key: str, run: str, owner: str, ttl_s: float, target: str) -> None:
    before = _read(folder, key) or {}
    now_s = time.time()
    since_s = before["since_s"] if before.get("run") == run and "since_s" in before else now_s
    lock = {
        "run": run,
        "owner": owner,
        "target": target,
        "since_s": since_s,
        "until_s": now_s + ttl_s,
        "holder": marks.me(),
    }
    state.write(_path(folder, key), lock, _SEEN_BY_ALL)
    if not _held:
        atexit.register(give_back)
    _held.setdefault(run, set()).add(key)


def give_back() -> None:
    """Release all that this process holds."""
    for run, keys in list(_held.items()):
        with suppress(Trouble):  # nobody is left to be told; whoever comes next finds a dead lock
            release(list(keys), run)


def _told(lock: dict[str, Any]) -> dict[str, Any]:
    """What others may want to know: who, which run, on which target, seconds since and until, whether it lives."""
    return {
        "key": lock["key"],
        "run": str(lock.get("run", "")),
        "owner": str(lock.get("owner", "")),
        "target": str(lock.get("target", "")),
        "since_s": float(lock.get("since_s", 0.0)),
        "until_s": float(lock.get("until_s", 0.0)),
        "live": _lives(lock),
    }


def _lives(lock: dict[str, Any]) -> bool:
    return time.time() <= lock.get("until_s", 0.0) and marks.lives(str(lock.get("holder", "")))


def _read(folder: Path, key: str) -> dict[str, Any] | None:
    lock = state.read(_path(folder, key))
    return None if lock is None else {**lock, "key": key}


def _path(folder: Path, key: str) -> Path:
    if not key.isalnum():
        raise Trouble("bad-key", f"{key!r} is no key of a lock")
    return folder / f"{key}.json"


@contextmanager
def _folder() -> Iterator[Path]:
    """The folder, kept to ourselves; it goes when nothing is in it any more."""
    deadline = time.monotonic() + BUSY_S
    while True:
        folder = state.shared_folder()
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            if time.monotonic() > deadline:
                raise Trouble("busy", f"{folder} comes and goes") from None
            continue  # whoever used it last has just removed it
        try:
            if not _alone(handle, deadline):
                raise Trouble("busy", f"{folder} is kept locked by somebody for {BUSY_S:g} s")
            if _is_at(handle, folder):
                try:
                    yield folder
                finally:
                    state.tidy(folder)  # also where a full disk took the folder and no lock
                return
        finally:
            os.close(handle)


def _alone(handle: int, deadline: float) -> bool:
    while not _locked(handle):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, folder: Path) -> bool:
    """Whether the folder behind `handle` is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(handle), folder.lstat())
    except FileNotFoundError:
        return False


OPS: dict[str, Callable[..., Any]] = {
    "lock.take": take,
    "lock.renew": renew,
    "lock.release": release,
    "lock.seen": seen,
    "lock.clear": clear,
}
