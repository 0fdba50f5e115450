"""Finds a server's process on this machine: by its pid, by a pid file, or by who listens on a port."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from chaos.model.target import ServerSpec


@dataclass(frozen=True, slots=True)
class Located:
    """A process, told apart from later ones with the same pid by its start time (seconds since the epoch)."""

    pid: int
    start_time: float


class NotLocated(Exception):
    """The process cannot be found; the text says why."""


def locate(spec: ServerSpec) -> Located | None:
    """The process of a server; None when the target does not say how to find it. Raises NotLocated."""
    if spec.pid is not None:
        return _by_pid(spec.pid, "the target's pid")
    if spec.pidfile is not None:
        return _by_pid(_read_pid(Path(spec.pidfile)), f"the pid in {spec.pidfile}")
    if spec.port is not None:
        return _by_port(spec.port)
    return None


def _by_pid(pid: int, what: str) -> Located:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise NotLocated(f"{what}, {pid}, is a zombie")
        return Located(pid, process.create_time())
    except psutil.NoSuchProcess as error:
        raise NotLocated(f"{what}, {pid}, is no process on this machine") from error
    except psutil.AccessDenied as error:
        raise NotLocated(f"{what}, {pid}, may not be looked at") from error


def _read_pid(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return int(file.read(64))
    except OSError as error:
        raise NotLocated(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise NotLocated(f"{path} holds no pid") from error


def _by_port(port: int) -> Located:
    """The oldest process that listens on `port`: workers inherit the socket of the server that started them."""
    try:
        pids = {
            connection.pid
            for connection in psutil.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
        }
    except (psutil.AccessDenied, OSError) as error:
        raise NotLocated(f"cannot see who listens on port {port}") from error
    if not pids:
        raise NotLocated(f"nobody on this machine listens on port {port}")
    found = []
    for pid in pids - {None}:
        try:
            found.append(_by_pid(int(pid or 0), f"the listener on port {port}"))
        except NotLocated:
            continue  # gone between two looks
    if not found:
        raise NotLocated(f"the listener on port {port} belongs to another user")
    return min(found, key=lambda process: process.start_time)
