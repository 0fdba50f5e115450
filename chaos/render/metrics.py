"""Which scraped series are worth showing, told from the canonical names that packs give; nothing is judged by it."""

from __future__ import annotations

from typing import Literal

Kind = Literal["queue", "progress", "aborts", "other"]

_NO_PROGRESS = ("usage", "used", "available", "evictable", "max", "capacity")


def kind_of(name: str) -> Kind:
    """What a canonical metric shows: a backlog, user work, aborts, or something that the renderers leave out."""
    if "abort" in name:
        return "aborts"
    if "queue" in name or name.startswith(("running", "waiting", "retracted", "inflight")) or "active" in name:
        return "queue"
    if "token" in name and not any(word in name for word in _NO_PROGRESS):
        return "progress"
    return "other"


def short_name(name: str, node: str) -> str:
    """A queue's name without its node's role and without the word queue: `bootstrap` for `prefill_bootstrap_queue`."""
    role = node.split("-", 1)[0]
    short = name.removeprefix(f"{role}_").removesuffix("_queue")
    return short.replace("_", " ") or name
