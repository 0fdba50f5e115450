"""What the error words of `RequestEnded` mean, for people: the words are short to be counted, not to be read."""

from __future__ import annotations

FAILURES = {
    "connect": "no connection came about",
    "refused": "the connection was refused",
    "status": "an error was answered",
    "in-band": "an error came within the answer",
    "truncated": "the answer broke off",
    "no-tokens": "the answer held no token",
    "timeout": "no answer came to its end in time",
    "reset": "the connection was reset",
    "cancelled": "we hung up",
    "protocol": "the answer could not be understood",
    "way": "our own way to the target broke",
}
"""Every error of the agent and of the canaries."""


def failure_words(error: str) -> str:
    """The words for an error; the error itself where a newer format knows more of them."""
    return FAILURES.get(error, error)
