"""Secrets come by reference (`env:NAME`, `file:PATH`, `cmd:COMMAND`), looked up at the last moment.

No file of ours holds one. Whatever was looked up in this process is known from then on, so that it can be removed from
what servers echo: error texts, log lines, whatever goes into a run folder or onto a terminal.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chaos.model.headers import HeaderValue
    from chaos.model.scenario import Scenario
    from chaos.model.target import Target

COMMAND_S = 20.0
"""How long a command may take to print a secret; one that waits for somebody to type would wait for ever."""
MIN_SECRET = 6
"""A shorter value is too common to be removed everywhere."""
REDACTED = "[redacted]"

_known: set[str] = set()


def look_up(reference: str | None, what: str = "api_key") -> str | None:
    """The secret behind a reference; None for none. Raises `UsageError` when it is not there.

    `what` is for people: what it is for. A command runs once for as long as this process lives; it may block.
    """
    if reference is None:
        return None
    kind, _, name = reference.partition(":")
    value = {"env": _from_environment, "file": _from_file, "cmd": _from_command}[kind](name, what)
    if not value:
        raise UsageError(f"{what}: {_told(kind, name)} is empty")
    if not (value.isascii() and value.isprintable()):
        raise UsageError(f"{what}: {_told(kind, name)} does not give one line of ASCII text")
    if len(value) >= MIN_SECRET:
        _known.add(value)
    return value


def look_up_all(target: Target, scenario: Scenario, progress: Callable[[str], None]) -> None:
    """Look up every secret that a run will need, so that one which is missing is known before anything is touched."""
    look_up_target(target, progress)
    for group in scenario.load:
        look_up(group.api_key, f"load {group.name}: api_key")
        header_values(group.headers, f"load {group.name}: ")


def look_up_target(target: Target, progress: Callable[[str], None]) -> None:
    """Look up every secret that asking a target needs."""
    references = [target.api_key, *(value.secret for value in target.headers.values())]
    if any(reference and reference.startswith("cmd:") for reference in references):
        progress("waiting for a command that gives a secret")
    look_up(target.api_key)
    header_values(target.headers)


def header_values(headers: Mapping[str, HeaderValue], whose: str = "") -> dict[str, str]:
    """The headers as they are sent."""
    return {
        name: value.text if value.text is not None else look_up(value.secret, f"{whose}headers.{name}") or ""
        for name, value in headers.items()
    }


def request_headers(target: Target) -> dict[str, str]:
    """What every request of ours to a target carries."""
    api_key = look_up(target.api_key)
    return {**header_values(target.headers), **({"authorization": f"Bearer {api_key}"} if api_key else {})}


def known_secrets() -> frozenset[str]:
    """Every secret that was looked up so far, but for those too short to be told from other text."""
    return frozenset(_known)


def concealed(text: str) -> str:
    """A text without any of them."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


def _from_environment(name: str, what: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise UsageError(f"{what}: the environment variable {name} is not set", hint=f"export {name}=…")
    return value


def _from_file(name: str, what: str) -> str:
    try:
        return Path(name).expanduser().read_text().strip()
    except UnicodeDecodeError:
        raise UsageError(f"{what}: {name} is no text") from None
    except OSError as error:
        raise UsageError(f"{what}: {name} cannot be read: {error.strerror or error}") from None


def _from_command(command: str, what: str) -> str:
    value, why = _output_of(command)
    if why:
        raise UsageError(f"{what}: the command for it {why}", hint="run it by hand; what it says is never shown here")
    return value


@cache
def _output_of(command: str) -> tuple[str, str]:
    """What a shell command prints, or why that is nothing; what it says is never shown, for it may be the secret."""
    process = subprocess.Popen(  # noqa: S602 - the target's owner wrote it
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=COMMAND_S)
    except BaseException as error:  # a Ctrl-C, too: it waits in a session of its own
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return "", f"did not end within {COMMAND_S:g} s"
        raise
    if process.returncode:
        return "", f"ended with {process.returncode}"
    return output.decode(errors="replace").strip(), ""


def _told(kind: str, name: str) -> str:
    return {"env": f"the environment variable {name}", "file": name, "cmd": "what the command for it prints"}[kind]
