"""Codewords: a secret in each prompt that its answer must repeat, and that no other answer may hold.

`[[secret:OWNER-MAC]]` names its owner (`g0-12-3` is round 3 of session 12 of the first group, `c-7` the seventh canary)
and carries a check over the run and the owner: whose text an answer holds can be told from the answer alone, and what a
model made up belongs to nobody. Only owners are ever reported, never the secret itself.
"""

from __future__ import annotations

import hashlib
import re

ROOM_TOKENS = 24
"""What a codeword and the words that ask for it cost in tokens, about; an answer needs as many to repeat it."""

_FOUND = re.compile(r"\[\[secret:([a-z0-9]{1,8}(?:-[0-9]{1,9}){1,2})-([0-9a-f]{8})\]\]")


def codeword(run: str, owner: str) -> str:
    """The secret of one request of a run."""
    return f"[[secret:{owner}-{_mac(run, owner)}]]"


def request(run: str, owner: str) -> str:
    """The words that ask for it, at the end of a prompt."""
    return f"Begin your answer with this code: {codeword(run, owner)}"


def owners(run: str, text: str) -> list[str]:
    """Whose codewords of this run a text holds, in order, each once; what is not well made is nobody's."""
    found = (owner for owner, mac in _FOUND.findall(text) if mac == _mac(run, owner))
    return list(dict.fromkeys(found))


def check(run: str, owner: str, text: str, *, ours: str = "") -> tuple[str, str]:
    """What an answer to `owner` holds: `ok`, `missing` or `corrupted`, and in the last case whose codeword.

    Owners that begin with `ours` are earlier requests of the same session: its context has them, so they are no news.
    """
    found = owners(run, text)
    foreign = [other for other in found if other != owner and not (ours and other.startswith(ours))]
    if foreign:
        return "corrupted", foreign[0]
    return ("ok" if owner in found else "missing"), ""


def _mac(run: str, owner: str) -> str:
    return hashlib.sha256(f"pdchaos {run} {owner}".encode()).hexdigest()[:8]
