"""The one error tree of pdchaos. A `UserError` prints without a traceback; anything else is a harness error.

PdchaosError
├── UserError            the user can mend it: message, hint, exit code
│   ├── UsageError       wrong arguments                                        exit 2
│   ├── InvalidFile      a YAML file is wrong; carries every problem at once    exit 2
│   ├── Refused          the target does not allow what was asked               exit 5
│   └── Unfit            the target does not serve before anything was broken   exit 6
└── HarnessError         our own fault or our machine's (disk full, port taken) exit 4
    └── LabError         a lab could not be started or stopped
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from chaos.model.outcomes import ExitCode


class PdchaosError(Exception):
    """Root of everything pdchaos raises on purpose."""

    exit_code: ClassVar[ExitCode] = ExitCode.HARNESS_ERROR

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UserError(PdchaosError):
    """The user can mend it."""

    exit_code = ExitCode.USAGE


class UsageError(UserError):
    """Wrong arguments."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong in a file; `line` and `column` count from 1."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.file}:{self.line}:{self.column}: {self.message}{hint}"


class InvalidFile(UserError):
    """A file was refused; `problems` lists everything that is wrong with it, in order of position."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in sorted(problems)))
        self.problems = sorted(problems)


class Refused(UserError):
    """The target does not allow what was asked."""

    exit_code = ExitCode.REFUSED


class Unfit(UserError):
    """The target does not serve before anything was broken."""

    exit_code = ExitCode.UNFIT


class HarnessError(PdchaosError):
    """Our own fault, or our machine's."""


class LabError(HarnessError):
    """A lab could not be started or stopped."""
