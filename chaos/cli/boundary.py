"""The last line of every command: a user's mistake prints a message and a hint, a defect of ours says it is one."""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chaos.model.errors import InvalidFile, PdchaosError, UserError
from chaos.model.outcomes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator


def guarded() -> int:
    """Run the command line; returns the process's exit code."""
    from chaos.cli.app import app  # noqa: PLC0415 - after the cheap imports

    try:
        app()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(ExitCode.AS_EXPECTED)
    except PdchaosError as error:
        tell(error)
        return int(error.exit_code)
    except Exception:  # noqa: BLE001 - an uncaught error is exit 4 like every other defect of ours
        traceback.print_exc()
        complain("this is a defect of pdchaos itself; the lines above say where")
        return int(ExitCode.HARNESS_ERROR)
    return int(ExitCode.AS_EXPECTED)


@contextmanager
def interruptible() -> Iterator[None]:
    """A Ctrl-C inside leaves with exit code 130 and a line instead of a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        complain("interrupted")
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None


def tell(error: PdchaosError) -> None:
    """Print an error for people: what is wrong, and what to do about it."""
    if isinstance(error, InvalidFile):
        count = len(error.problems)
        _print(error.message)
        complain(f"{count} problem{'s' if count > 1 else ''}; nothing was started")
        return
    complain(error.message if isinstance(error, UserError) else f"harness error: {error.message}")
    if error.hint:
        _print(f"  hint: {error.hint}")


def complain(message: str) -> None:
    """One line on stderr under our name."""
    _print(f"pdchaos: {message}")


def _print(line: str) -> None:
    """On stderr, without any secret that was looked up: errors quote what servers say."""
    from chaos.engine.secrets import concealed  # noqa: PLC0415 - after the cheap imports

    print(concealed(line), file=sys.stderr)  # noqa: T201
