"""What only a first request brings about in SGLang, brought about on every path before anybody judges it."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

from chaos.lab.real.asking import NO_ANSWER, post

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from chaos.lab.real.sglang.commands import Place

WARM_TIMEOUT_S = 180.0  # of each path
_GENERATION_TIMEOUT_S = 60.0  # the first one on a path can take 15 s and more
_PAUSE_S = 1.0


def warm(
    places: Iterable[Place],
    progress: Callable[[str], None],
    *,
    check: Callable[[], None],
    error: Callable[[str, str], Exception],
) -> None:
    """A real generation from every prefill to every decode, then one through the router, each asked for until it comes.

    `check` is called between two attempts and may raise; `error` makes the error that a node is to blame for.
    """
    router, *servers = places

    def generate(via: list[Place], prefill: Place | None) -> float:
        began = time.monotonic()
        while True:
            failures = _ask_all(via, prefill)
            took = time.monotonic() - began
            if not failures:
                return took
            check()
            if took > WARM_TIMEOUT_S:
                names = " and ".join(place.name for place in via)
                raise error(via[-1].name, f"no generation through {names} in {took:.0f} s: {failures[0]}")
            time.sleep(_PAUSE_S)

    for prefill in (place for place in servers if place.role == "prefill"):
        for decode in (place for place in servers if place.role == "decode"):
            took = generate([prefill, decode], prefill)
            progress(f"{prefill.name} to {decode.name}: first generation after {took:.1f} s")
    took = generate([router], None)
    progress(f"through the router: first generation after {took:.1f} s")


def _ask_all(via: list[Place], prefill: Place | None) -> list[str]:
    """One generation, sent to all of `via` at once as a router would; what went wrong."""
    body: dict[str, object] = {
        "text": "say something",
        "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True},
    }
    if prefill is not None:
        body["bootstrap_host"] = prefill.address
        body["bootstrap_port"] = prefill.bootstrap_port
        body["bootstrap_room"] = random.getrandbits(62)
    failures: list[str] = []

    def ask(place: Place) -> None:
        try:
            post(f"{place.url}/generate", body, timeout_s=_GENERATION_TIMEOUT_S)
        except NO_ANSWER as error:
            failures.append(f"{place.name}: {error}")

    asking = [threading.Thread(target=ask, args=(place,), daemon=True) for place in via]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    return failures
