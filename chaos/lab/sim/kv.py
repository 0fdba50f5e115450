"""What KV bytes are in the sim, and how generated text follows from them.

A prompt token is a word (long words are split). Its KV is one 64-byte block that holds the word, so a decode node can
only continue a prompt whose KV it really received: it never looks at its own copy of the text. Wrong, short or foreign
KV gives wrong text, and a foreign secret.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass

BYTES_PER_TOKEN = 64
_ROOM_FOR_WORD = BYTES_PER_TOKEN - 2  # two bytes lead a block: length, and whether the word goes on from the last block
_SECRET = re.compile(r"\[\[secret:[^\]\s]{1,64}\]\]")
_MASK = (1 << 64) - 1
_WORDS = tuple(f" {a}{b}{c}{d}" for a in "bdfgklmnprstvz" for b in "aeiou" for c in "lmnrst" for d in ("", "a", "o"))


def tokenize(text: str) -> list[bytes]:
    """KV blocks of a text's words, without filler: length byte, continuation byte, up to 62 bytes of the word."""
    tokens = []
    for word in text.split():
        raw = word.encode()
        for start in range(0, len(raw), _ROOM_FOR_WORD):
            part = raw[start : start + _ROOM_FOR_WORD]
            tokens.append(bytes((len(part), start > 0)) + part)
    return tokens


def make_kv(tokens: list[bytes]) -> bytes:
    """The KV cache of a prompt: `len(tokens) * 64` bytes; the filler depends on the position."""
    return b"".join(
        token + bytes((position & 255,)) * (BYTES_PER_TOKEN - len(token)) for position, token in enumerate(tokens)
    )


def checksum(kv: bytes) -> int:
    """CRC-32 of KV bytes, as sent beside them."""
    return zlib.crc32(kv)


def read_kv(kv: bytes) -> str:
    """The prompt that KV bytes stand for."""
    parts = []
    for at in range(0, len(kv), BYTES_PER_TOKEN):
        length, goes_on = kv[at], kv[at + 1]
        parts.append((b"" if goes_on else b" ") + kv[at + 2 : at + 2 + length])
    return b"".join(parts).decode(errors="replace")  # a long word may be split within a character


@dataclass(frozen=True, slots=True)
class Continuation:
    """The text a node generates after a prompt: the last secret in it, if any, then words that follow from the KV."""

    seed: int
    secret: str
    begins_at: int = 0  # the token from which on these KV bytes are read

    @classmethod
    def of(cls, kv: bytes, *, begins_at: int = 0) -> Continuation:
        """What follows from these KV bytes."""
        secrets = _SECRET.findall(read_kv(kv))
        seed = int.from_bytes(hashlib.blake2b(kv, digest_size=8).digest(), "big")
        return cls(seed=seed, secret=secrets[-1] if secrets else "", begins_at=begins_at)

    def token(self, index: int) -> str:
        """Text of the `index`-th generated token."""
        if index == self.begins_at and self.secret:
            return self.secret
        # splitmix64: any bit of the KV changes every word after it
        mixed = (self.seed + index * 0x9E3779B97F4A7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        return _WORDS[(mixed ^ (mixed >> 31)) % len(_WORDS)]
