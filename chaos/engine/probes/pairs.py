"""Which prefill>decode pairs canaries can ask by themselves, and the rooms in which the two servers meet.

A request reaches a chosen pair when the same body goes to both servers with the prefill's bootstrap host and port and
a room that is nobody else's; with several data-parallel ranks the room also chooses the rank (`room % dp_size`, sglang
0.5.9 and later). So each rank of a pair is a path of its own, while they are few; else the rooms of a pair are
consecutive numbers, and every rank gets its turn.
"""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chaos.model.events import Path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.engine.probes.discover import FoundNode

MOST_PAIRS = 16
"""With more pairs than this each node is asked in one pair only: what is looked at must not grow as P times D.

With more ranks of pairs than this the ranks take turns.
"""
ROOM_BITS = 62
"""Rooms are 63-bit numbers; a start below half of that leaves room to count."""

ONLY_PAIR = "the only pair there is; the routed path takes it"
OTHER_PAIRS = "canaries go through the router, which chooses the pair; this one is not asked by itself"
NO_PORT = "the target gives no bootstrap_port for {prefill}, so canaries cannot go straight to the pair"
MANY_PAIRS = "one of {count} pairs; each of its two nodes is asked in another one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Where the decode side finds a prefill node."""

    host: str
    port: int


def rendezvous(prefill: FoundNode) -> Rendezvous | None:
    """Where decode finds this prefill; None when the target does not tell its bootstrap port."""
    if prefill.spec.bootstrap_port is None:
        return None
    return Rendezvous(host=prefill.spec.bootstrap_host or host_of(prefill.spec.url), port=prefill.spec.bootstrap_port)


def host_of(url: str) -> str:
    """The host of a URL; an IPv6 address keeps its brackets, as it does when a router passes it on."""
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def pair_paths(nodes: Sequence[FoundNode]) -> tuple[Path, ...]:
    """Every pair as a path: examined where canaries can go straight to it, else with the reason why not."""
    prefill = [found for found in nodes if found.node.role == "prefill"]
    decode = [found for found in nodes if found.node.role == "decode"]
    pairs = list(itertools.product(prefill, decode))
    asked = _covering(len(prefill), len(decode))
    ranks = max((each.dp_size for each in (*prefill, *decode)), default=1)
    turns = len(asked) * ranks > MOST_PAIRS
    paths: list[Path] = []
    for (i, p), (j, d) in itertools.product(enumerate(prefill), enumerate(decode)):
        reason = _why_not(p, d, only=len(pairs) == 1)
        if not reason and (i, j) not in asked:
            reason = MANY_PAIRS.format(count=len(pairs))
        paths += _paths_of(p, d, reason, turns=turns)
    return tuple(paths)


def _paths_of(prefill: FoundNode, decode: FoundNode, reason: str, *, turns: bool) -> Iterator[Path]:
    """The pair as one path, or as one for each of its data-parallel ranks."""
    pair, nodes = f"{prefill.node.id}>{decode.node.id}", (prefill.node.id, decode.node.id)
    ranks = max(prefill.dp_size, decode.dp_size)
    if reason:
        yield Path(id=pair, kind="direct", nodes=nodes, examined=False, reason=reason)
    elif turns or ranks == 1:
        yield Path(id=pair, kind="direct", nodes=nodes, ranks=ranks)
    else:
        for rank in range(ranks):
            yield Path(id=f"{pair} dp{rank}", kind="rank", nodes=nodes, rank=rank, of_ranks=ranks)


def rooms(path: Path) -> Iterator[int]:
    """Rooms of one path, without end; of a path of one rank, those that choose it."""
    start, step = secrets.randbits(ROOM_BITS), path.of_ranks
    return itertools.count(start - start % step + path.rank, step)


def _why_not(prefill: FoundNode, decode: FoundNode, *, only: bool) -> str:
    if prefill.pack.paths != "direct" or decode.pack.paths != "direct":
        return ONLY_PAIR if only else OTHER_PAIRS
    if rendezvous(prefill) is None:
        return NO_PORT.format(prefill=prefill.node.id)
    return ""


def _covering(prefill: int, decode: int) -> set[tuple[int, int]]:
    """The pairs to ask: all of them while they are few, else so many that each node is in one."""
    if prefill * decode <= MOST_PAIRS:
        return set(itertools.product(range(prefill), range(decode)))
    return {(n % prefill, n % decode) for n in range(max(prefill, decode))}
