"""What only a first request brings about in Dynamo, brought about before anybody judges it."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

from chaos.lab.real.asking import NO_ANSWER, get, post
from chaos.lab.real.commands import MODEL_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.lab.real.dynamo.commands import Place

WARM_TIMEOUT_S = 60.0
_PAUSE_S = 0.1
_IN_A_ROW = 3  # generations that succeed on end, once every worker has served
_SERVED = re.compile(
    r'^dynamo_component_requests_total\{[^}]*dynamo_endpoint="generate"[^}]*\} ([0-9.e+]+)$', re.MULTILINE
)


def warm(
    router: Place, workers: list[Place], *, check: Callable[[], None], error: Callable[[str, str], Exception]
) -> float:
    """Chat through the frontend until every worker has served and several answers in a row were good; how long it took.

    `check` is called again and again and may raise; `error` makes the error that a node is to blame for.
    """
    began, in_a_row, failure = time.monotonic(), 0, ""
    while in_a_row < _IN_A_ROW or not all(map(_has_served, workers)):
        check()
        if time.monotonic() - began > WARM_TIMEOUT_S:
            idle = [place.name for place in workers if not _has_served(place)]
            what = f"{', '.join(idle)} served nothing" if idle else failure
            raise error(router.name, f"was not warm within {WARM_TIMEOUT_S:g} s: {what}")
        failure = _chat(router)
        in_a_row = 0 if failure else in_a_row + 1
        if failure:
            time.sleep(_PAUSE_S)
    return time.monotonic() - began


def _chat(router: Place) -> str:
    """One generation through the frontend; what went wrong, or nothing."""
    body = {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": "say something"}],
        "max_tokens": 4,
        "ignore_eos": True,
    }
    try:
        read = json.loads(post(f"{router.url}/v1/chat/completions", body))
    except (*NO_ANSWER, ValueError) as error:
        return str(error)
    return "" if read.get("usage", {}).get("completion_tokens") else f"no tokens: {read}"


def _has_served(worker: Place) -> bool:
    """Whether a worker has generated for anybody."""
    try:
        found = _SERVED.findall(get(f"{worker.url}/metrics").decode())
    except NO_ANSWER:
        return False
    return any(float(value) > 0 for value in found)
