"""The last line of every command: a user's mistake prints a message and a hint, a defect of ours says it is one."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chaos.launch.telling import complain, tell
from chaos.model.errors import PdchaosError
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
