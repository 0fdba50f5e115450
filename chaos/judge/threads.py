"""Which threads that a node cannot serve without were there before the load and are not any more.

An engine's process may go on, answer its health checks and serve nothing, because a thread of it has ended and nobody
watches that thread. Names are compared between two looks of the interpreter's own account. Where nobody could ever
look, nothing is known, and canaries that pass must do: most machines have no py-spy. But where somebody did look before
the load and nobody after it, what could have told is lost, and that is doubt: a thread may be gone that only the next
fault needs. Where a process is dead or another one, its death is what there is to tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.processes import SAME_START_S, dead_processes
from chaos.judge.windows import load_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.judge.facts import Facts
    from chaos.model import events as ev


@dataclass(frozen=True, slots=True)
class ThreadGone:
    """A thread that ended while its process went on."""

    node: str
    thread: str  # its whole name
    side: str
    title: str
    at_ns: int  # the first look without it
    seqs: tuple[int, ...]

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.node}: thread {self.thread} was there before the load and is gone: {self.title}"


@dataclass(frozen=True, slots=True)
class Threads:
    """What is known of all threads that matter."""

    gone: tuple[ThreadGone, ...]
    alive: tuple[str, ...]  # `node: thread` of those that are still there
    unread: tuple[str, ...]  # nodes that nobody looked into before the load
    lost: tuple[str, ...]  # nodes that were looked into before the load, and not after it
    seqs: tuple[int, ...]


def threads(facts: Facts) -> Threads:
    """Compare the last look before the load with the last one after it."""
    uses = facts.deployment.threads if facts.deployment else ()
    if not uses:
        return Threads((), (), (), (), ())
    loaded_ns = load_start(facts)
    dead = {one.node for one in dead_processes(facts)}
    gone: list[ThreadGone] = []
    alive: list[str] = []
    unread: list[str] = []
    lost: list[str] = []
    seqs: list[int] = []
    for node in facts.nodes:
        wanted = [use for use in uses if node.role in use.roles]
        if not wanted or node.id in dead:
            continue
        looks = [look for look in facts.processes.get(node.id, ()) if look.threads_by == "python"]
        before = [look for look in looks if loaded_ns is not None and look.t_ns <= loaded_ns]
        after = [look for look in looks if loaded_ns is not None and look.t_ns > loaded_ns]
        if not before or not after:
            (lost if _is_lost(facts, before) else unread).append(node.id)
            continue
        if not _same(before[-1], after[-1]):
            continue
        seqs += [before[-1].seq, after[-1].seq]
        for use in wanted:
            missing = _missing(before[-1], after[-1], use)
            gone += [_gone(node.id, name, use, before[-1], after) for name in missing]
            if not missing:
                alive += [f"{node.id}: {name}" for name in dict.fromkeys(_named(after[-1], use))]
    return Threads(tuple(gone), tuple(alive), tuple(unread), tuple(lost), tuple(seqs))


def _is_lost(facts: Facts, before: Sequence[ev.ProcessSeen]) -> bool:
    """Whether a node could be looked into; people who collect evidence look once, and that is no loss."""
    return bool(before) and not facts.imported


def _same(one: ev.ProcessSeen, other: ev.ProcessSeen) -> bool:
    if one.start_time is None or other.start_time is None:
        return one.pid == other.pid
    return one.pid == other.pid and abs(one.start_time - other.start_time) < SAME_START_S


def _named(look: ev.ProcessSeen, use: ev.ThreadUse) -> list[str]:
    return [name for name in look.threads if use.name in name]


def _missing(before: ev.ProcessSeen, after: ev.ProcessSeen, use: ev.ThreadUse) -> list[str]:
    """Names that were there more often before: ranks are processes of their own, with the same names in each."""
    left = _named(after, use)
    missing = []
    for name in _named(before, use):
        if name in left:
            left.remove(name)
        else:
            missing.append(name)
    # As many threads under other names are replacements, not losses.
    return missing[: max(len(missing) - len(left), 0)]


def _gone(
    node: str, name: str, use: ev.ThreadUse, before: ev.ProcessSeen, after: Sequence[ev.ProcessSeen]
) -> ThreadGone:
    first = after[-1]
    for look in reversed(after):
        if look.threads.count(name) >= before.threads.count(name):
            break
        first = look
    title = use.title or "the node cannot serve without it"
    return ThreadGone(node, name, use.side or "", title, first.t_ns, (before.seq, first.seq))
