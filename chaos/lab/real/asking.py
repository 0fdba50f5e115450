"""HTTP as a lab asks its own nodes: past every proxy."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_ANSWER = (OSError, http.client.HTTPException)
"""What `get` and `post` raise: nobody there, too late, an error of the server's, or something that is not HTTP."""

_TIMEOUT_S = 10.0
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, *, timeout_s: float = _TIMEOUT_S) -> bytes:
    """The body of a good answer."""
    with _NO_PROXY.open(url, timeout=timeout_s) as answer:
        return bytes(answer.read())


def post(url: str, body: Mapping[str, object], *, timeout_s: float = _TIMEOUT_S) -> bytes:
    """The body of a good answer to JSON."""
    request = urllib.request.Request(  # noqa: S310, our own address
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with _NO_PROXY.open(request, timeout=timeout_s) as answer:
        return bytes(answer.read())


def is_healthy(url: str, *, timeout_s: float = _TIMEOUT_S) -> bool:
    """Whether `/health` says 200."""
    try:
        with _NO_PROXY.open(f"{url}/health", timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except NO_ANSWER:
        return False
