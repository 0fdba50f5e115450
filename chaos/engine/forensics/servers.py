"""What the servers say themselves: metrics as they are, and their own account of version and settings, trimmed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.probes.http import TRANSPORT_ERRORS, describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from chaos.engine.forensics.redact import Redactor

TIMEOUT_S = 5.0
MOST_BYTES = 4 << 20
MOST_ITEMS = 50
MOST_CHARACTERS = 500


class Unreadable(Exception):
    """A server did not tell; the text says why."""


async def fetch(http: httpx.AsyncClient, url: str, headers: Mapping[str, str]) -> bytes:
    """What stands at `url`, cut at MOST_BYTES; raises Unreadable. These requests touch no generation."""
    body = bytearray()
    try:
        async with asyncio.timeout(TIMEOUT_S), http.stream("GET", url, headers=dict(headers)) as response:
            if response.status_code != 200:
                raise Unreadable(f"HTTP {response.status_code}")
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) >= MOST_BYTES:
                    break
    except TimeoutError:
        raise Unreadable(f"no answer in {TIMEOUT_S:g} s") from None
    except TRANSPORT_ERRORS as error:
        raise Unreadable(": ".join(describe(error))) from None
    return bytes(body[:MOST_BYTES])


def trimmed_info(body: bytes, redactor: Redactor) -> bytes:
    """A server's account of itself without secrets, long lists and long texts; raises Unreadable."""
    try:
        told: object = msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"no JSON: {error}") from None
    return msgspec.json.format(msgspec.json.encode(_short(redactor.value(told))), indent=2) + b"\n"


def _short(value: object) -> object:
    match value:
        case dict():
            return {name: _short(inner) for name, inner in value.items()}
        case list() if len(value) > MOST_ITEMS:
            return [*map(_short, value[:MOST_ITEMS]), f"... {len(value) - MOST_ITEMS} more"]
        case list():
            return [_short(inner) for inner in value]
        case str() if len(value) > MOST_CHARACTERS:
            return value[:MOST_CHARACTERS] + "..."
        case _:
            return value
