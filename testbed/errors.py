"""What the bed cannot do, said so that a person can mend it."""

from __future__ import annotations


class BedError(Exception):
    """A bed could not be started, or a host of it did not do what it was asked."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
