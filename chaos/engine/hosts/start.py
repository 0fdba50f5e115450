"""Starts processes of ours on a host: the archive goes through the session's stdin into the host's memory."""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paramiko

from chaos import outpost
from chaos.engine.hosts.place import PYTHON
from chaos.engine.pyz import pyz_bytes
from chaos.model.errors import Unfit, UsageError

if TYPE_CHECKING:
    from chaos.engine.hosts.place import Place

STARTING_S = 30.0
ASKING_S = 5.0
NOISE_BYTES = 1 << 18
"""Start-up files of shells print a line or a page, not a book."""
_TOLD_BYTES = 4000
_TOLD_CHARS = 200

_AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec {0}; else exec sudo -n -- {0}; fi'
_TAKE = (
    "import os,sys;b=b'';"
    "exec('while len(b)<{size}:\\n c=os.read(0,{size}-len(b))\\n if not c: sys.exit(3)\\n b+=c\\nexec(b)')"
)
"""Reads the text of `outpost/boot.py`: short, because it goes through a shell, and for any Python there is."""


@dataclass(frozen=True, slots=True)
class Started:
    """A process of ours on a host: what it greeted us with, and what came right behind."""

    channel: paramiko.Channel
    hello: dict[str, Any]
    rest: bytes


@cache
def _code() -> bytes:
    return pyz_bytes()


@cache
def _boot() -> str:
    return Path(outpost.__file__).with_name("boot.py").read_text()


def start(transport: paramiko.Transport, place: Place, word: str, run: str) -> Started:
    """Start the archive as `word` in a session of its own. Raises UserError with what is wrong on the host."""
    mark, code = secrets.token_hex(8), _code()
    digest = hashlib.sha256(code).hexdigest()
    text = f"{_boot()}\nboot({len(code)}, {digest!r}, {word!r}, {mark!r}, {run!r})\n".encode()
    command = f"{shlex.quote(place.python)} -ESsc {shlex.quote(_TAKE.format(size=len(text)))}"
    if place.sudo:  # which not every system has, so root does without
        command = f"sh -c {shlex.quote(_AS_ROOT.format(command))}"
    channel = _session(transport, place)
    try:
        channel.settimeout(STARTING_S)
        channel.exec_command(command)
        with suppress(OSError):  # it has ended; what it said tells why
            channel.sendall(text + code)
        return _greeted(channel, place, mark)
    except Unfit:
        channel.close()
        if place.python != PYTHON and (said := _instead_of_a_version(transport, place)) is not None:
            raise UsageError(
                f"{place.label}: {place.python} is no Python: asked for its version (-V) it says {said or 'nothing'}",
                hint="`python` under `ssh` is the path of a Python 3.9 or later on that host",
            ) from None
        raise
    except (paramiko.SSHException, OSError, EOFError) as error:
        channel.close()
        raise Unfit(f"{place.label}: no command could be started there: {error or 'it was closed'}") from None
    except BaseException:
        channel.close()
        raise


def _instead_of_a_version(transport: paramiko.Transport, place: Place) -> str | None:
    """What the program that the user calls Python says, when that is no version of Python; None when nobody knows."""
    mark = secrets.token_hex(8)  # what comes before it, the shell's start-up files said
    try:
        channel = transport.open_session(timeout=STARTING_S)
        try:
            channel.settimeout(ASKING_S)
            channel.set_combine_stderr(True)
            channel.exec_command(f"echo {mark}; {shlex.quote(place.python)} -V")
            channel.shutdown_write()
            said = b""
            while len(said) < _TOLD_BYTES and (more := channel.recv(_TOLD_BYTES)):
                said += more
        finally:
            channel.close()
    except (paramiko.SSHException, OSError, EOFError):
        return None
    _, ours, answer = said.decode("utf-8", "replace").partition(f"{mark}\n")
    if not ours or any(line.startswith(("Python ", "PyPy ")) for line in answer.splitlines()):
        return None
    return next(iter(answer.splitlines()), "")[:_TOLD_CHARS]


def _session(transport: paramiko.Transport, place: Place) -> paramiko.Channel:
    try:
        return transport.open_session(timeout=STARTING_S)
    except paramiko.ChannelException as error:
        raise Unfit(
            f"{place.label}: its sshd gives no further session ({error.text})",
            hint="MaxSessions there must be 2 at least",
        ) from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise Unfit(f"{place.label}: no session could be opened: {error or 'the connection was closed'}") from None


def _greeted(channel: paramiko.Channel, place: Place, mark: str) -> Started:
    """Skip what the host's shell has to say, until one line carries our mark."""
    deadline = time.monotonic() + STARTING_S
    heard, seen = b"", 0
    while True:
        channel.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            data = channel.recv(1 << 16)
        except TimeoutError:
            raise Unfit(
                f"{place.label}: {place.python} did not start within {STARTING_S:g} s{_said(channel, heard)}",
                hint=f"try by hand: {place.by_hand} {place.python} -V",
            ) from None
        if not data:
            raise _why_not(channel, place, heard)
        seen += len(data)
        *lines, heard = (heard + data).split(b"\n")
        for number, line in enumerate(lines):
            if mark.encode() in line:
                hello = json.loads(line)
                if "hello" not in hello:
                    raise _trouble(place, hello["kind"], hello["err"])
                channel.settimeout(None)
                return Started(channel, hello, b"\n".join([*lines[number + 1 :], heard]))
        if seen > NOISE_BYTES:
            raise Unfit(
                f"{place.label}: its shell printed {seen} bytes before running our command",
                hint="start-up files must be silent where there is no terminal",
            )


def _trouble(place: Place, kind: str, text: str) -> UsageError | Unfit:
    if kind == "old-python":
        return UsageError(
            f"{place.label}: {text}, and 3.9 or later is needed",
            hint="name another one: `python: PATH` under `ssh` (the engine's own environment has one)",
        )
    if kind in ("cut", "garbled"):
        return Unfit(f"{place.label}: {text}", hint="start-up files of its shell must not read standard input")
    return Unfit(f"{place.label}: {text}")


def _why_not(channel: paramiko.Channel, place: Place, heard: bytes) -> UsageError | Unfit:
    """It ended without a greeting."""
    said = _said(channel, heard)
    told = said.lower()
    status = channel.recv_exit_status() if channel.status_event.wait(1.0) else -1
    if place.sudo and "sudo" in told:
        if "password" in told or "terminal" in told or "tty" in told or "interactive" in told:
            return UsageError(
                f"{place.label}: sudo asks for a password{said}",
                hint=f"allow it without (sudoers: {place.user} ALL=(ALL) NOPASSWD: ALL), or leave `sudo` out",
            )
        return UsageError(f"{place.label}: sudo does not run us{said}", hint="mend sudo there, or leave `sudo` out")
    if status in (126, 127) or "not found" in told or "no such file" in told:
        return UsageError(
            f"{place.label}: {place.python} cannot be run{said}",
            hint="name a Python 3.9 or later: `python: PATH` under `ssh`",
        )
    return Unfit(
        f"{place.label}: {place.python} ended at once (status {status}){said}",
        hint="is its login shell a real one? start-up files must neither read standard input nor exit",
    )


def _said(channel: paramiko.Channel, heard: bytes) -> str:
    """What came in place of an answer, for people: the last of stderr, else of stdout."""
    said = b""
    while channel.recv_stderr_ready():
        said = (said + channel.recv_stderr(1 << 16))[-_TOLD_BYTES:]
    lines = (said.strip() or heard.strip()).decode("utf-8", "replace").splitlines()
    return f": {lines[-1][:300]}" if lines else ""
