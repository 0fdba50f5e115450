"""Runs told at random, for the laws: waves, faults of nodes, wrong content, lost workers, users, evidence by hand."""

from __future__ import annotations

import msgspec
from build import GOOD, HANG, INSIDE, REFUSED, Play, Reply, faulted, late, numbered, plan, play
from hypothesis import strategies as st

from chaos.model import events as ev

NODES = ("router-0", "prefill-0", "decode-0")
MORE_NODES = ("router-0", "prefill-0", "prefill-1", "decode-0", "decode-1")
ROUTED = ev.Path(id="routed", kind="routed")
PAIR = ev.Path(id="prefill-0>decode-0", kind="direct", nodes=("prefill-0", "decode-0"))
PAIRS = (
    ev.Path(id="routed", kind="routed", nodes=MORE_NODES),
    PAIR,
    ev.Path(id="prefill-0>decode-1", kind="direct", nodes=("prefill-0", "decode-1")),
    ev.Path(id="prefill-1>decode-0", kind="direct", nodes=("prefill-1", "decode-0"), ranks=2),
)

replies = st.sampled_from([GOOD, GOOD, HANG, REFUSED, late(6), late(3), Reply(at=38.0), Reply(at=52.0, error="status")])
contents = st.sampled_from(
    [
        GOOD,
        Reply(after=0.4, content="ok"),
        Reply(after=0.4, content="missing"),
        Reply(after=0.4, content="corrupted", whose="agents-s0000001-r00000"),
        Reply(after=0.4, digest="aaaa"),
        Reply(after=0.4, digest="bbbb"),
        Reply(after=0.4, prompt_tokens=30),
        Reply(after=0.4, prompt_tokens=1),
        Reply(after=0.4, mute=True),
    ]
)


class Journal(list[ev.AnyEvent]):
    """Events that do not fill the screen when an example is shown."""

    def __repr__(self) -> str:
        return f"<{len(self)} events>"


@st.composite
def waves(draw: st.DrawFn) -> Play:
    """Waves against clients, or nothing at all, up to the teardown."""
    cycles = draw(st.integers(1, 2))
    faults = draw(st.booleans()) or draw(st.booleans())
    told = play(
        plan=plan(cycles=cycles) if faults else plan(faults=(), cycles=1),
        paths=(ROUTED, PAIR) if draw(st.booleans()) else (ROUTED,),
        reply=draw(st.sampled_from([GOOD, GOOD, GOOD, GOOD, HANG, late(6)])),
        observes=draw(st.sampled_from([("liveness", "metrics", "log", "process"), ("log",), ()])),
        health=draw(st.sampled_from([200, 503, None])),
        token_rate=draw(st.sampled_from([0.0, 200.0])),
        received_rate=draw(st.sampled_from([0.0, 100.0])),
        backlog_rate=draw(st.sampled_from([0.0, -1.0])),
    )
    for _cycle in range(cycles if faults else 1):
        told.load(3)
        if faults:
            told.wave(waiting=draw(st.sampled_from([0, 24])), aborts=draw(st.sampled_from([0, 3])))
        told.reply = draw(replies)
        told.turns = draw(st.sampled_from([(), (), (), (GOOD, HANG), (GOOD, REFUSED, GOOD)]))
        if draw(st.booleans()):
            told.backlog["decode-0"] = draw(st.sampled_from([3.0, 30.0]))
        _misfortunes(draw, told, NODES)
        told.go(draw(st.integers(1, 45)))
        told.turns = ()
        told.reply = draw(st.sampled_from([told.reply, GOOD]))
        told.recovered(draw(st.integers(0, 12)))
    return told


@st.composite
def node_faults(draw: st.DrawFn) -> Play:
    """One fault of a node of two of each, done and undone as it is, and what the rest makes of it."""
    what = draw(st.sampled_from(["kill", "freeze", "hold", "restart", "variant", "frame"]))
    node = draw(st.sampled_from(["prefill-0", "decode-1"]))
    undone = what in ("freeze", "variant")
    told = faulted(
        kind={"restart": "restart", "variant": "restart", "frame": "foreign-frame"}.get(what, "signal"),
        lasts_s=5.0 if undone else None,
        nodes=MORE_NODES,
        paths=draw(st.sampled_from([PAIRS, PAIRS[:1], PAIRS[:2]])),
        health=draw(st.sampled_from([200, 503])),
        forgotten=draw(st.sampled_from([frozenset(), frozenset(), frozenset({"decode-0"})])),
        threads=draw(st.sampled_from([{}, dict(INSIDE)])),
    )
    if told.threads:
        told.look_inside()
    _user(draw, told, "before")
    meanwhile = draw(replies)
    if what in ("freeze", "hold"):
        told.freeze(node)
    elif what == "kill":
        told.fault(node, ends=True).die(node)
    elif what == "frame":
        told.fault(node, "foreign-frame")
    else:
        told.fault(node, "restart", ends=True, stages=("applied",), reversal="restart" if undone else "none").die(node)
        told.go(2).restart(node).fault(node, "restart", ends=True, stages=("verified",))
    told.reply = meanwhile
    told.go(draw(st.integers(1, 8)))
    if undone and draw(st.integers(0, 5)):
        if what == "freeze":
            told.thaw(node)
        else:
            stages: tuple[ev.Stage, ...] = ("reverted", "revert-verified")
            told.fault(node, "restart", ends=True, stages=stages, reversal="restart").restart(node)
    told.phase("recovery")
    told.reply = draw(replies)
    told.replies = draw(st.sampled_from([{}, {}, {PAIR.id: HANG}, {"prefill-0>decode-1": REFUSED}]))
    if draw(st.booleans()):
        told.forgotten = draw(st.sampled_from([frozenset({"decode-1"}), frozenset()]))
    _misfortunes(draw, told, MORE_NODES)
    _user(draw, told, "after")
    told.go(draw(st.integers(1, 45)))
    told.reply = draw(st.sampled_from([told.reply, GOOD]))
    told.replies = draw(st.sampled_from([told.replies, {}]))
    if told.threads and draw(st.booleans()):
        told.threads = draw(st.sampled_from([told.threads, {**told.threads, "prefill-0": ("MainThread",)}]))
        told.look_inside()
    return told.go(draw(st.integers(0, 12)))


@st.composite
def spoken(draw: st.DrawFn) -> Play:
    """A wave, and answers of every content."""
    mode = draw(st.sampled_from(["auto", "echo", "known-answer", "unchecked"]))
    told = play(plan=plan(content=mode), reply=draw(contents))
    told.reply = draw(st.sampled_from([told.reply, draw(contents)]))
    told.load(6)
    if draw(st.booleans()):
        told.wave()
    told.reply = draw(st.sampled_from([told.reply, draw(contents)]))
    told.go(draw(st.integers(1, 6)))
    told.reply = draw(contents)
    return told.recovered(draw(st.integers(5, 12)))


@st.composite
def hung_up(draw: st.DrawFn) -> Play:
    """A wave, queues that hold something, and users on whom we hang up in the teardown; tokens while idle, perhaps."""
    told = play().load(3).wave()
    told.backlog["prefill-0"] = draw(st.sampled_from([0.0, 2.0, 4.0]))
    told.recovered(draw(st.integers(5, 45))).phase("teardown").go(draw(st.integers(0, 6)))
    told.backlog["prefill-0"] = draw(st.sampled_from([told.backlog["prefill-0"], 0.0, 4.0]))
    for session in range(draw(st.integers(0, 3))):
        sent = draw(st.sampled_from([12.0, 16.0, told.now - 1]))
        told.hang_up(session, sent=sent, tokens=draw(st.sampled_from([0, 0, 5])))
    told.go(draw(st.integers(1, 16)))
    told.token_rate = draw(st.sampled_from([0.0, 0.0, 300.0]))
    return told


def _misfortunes(draw: st.DrawFn, told: Play, nodes: tuple[str, ...]) -> None:
    if not draw(st.integers(0, 4)):
        told.fatal()
    if not draw(st.integers(0, 5)):
        told.die(draw(st.sampled_from(nodes)))
    if not draw(st.integers(0, 5)):
        told.restart(draw(st.sampled_from(nodes)))


def _user(draw: st.DrawFn, told: Play, name: str) -> None:
    """Users who were served, failed, gave up or were never answered."""
    for number in range(draw(st.integers(0, 2))):
        error = draw(st.sampled_from(["", "", "status", "timeout"]))
        request = {"t_ns": 0, "req": f"users-{name}-{number}", "kind": "load", "path": "routed", "group": "users"}
        sent = told.ns(told.now)
        told.tell(ev.RequestStarted(**request, intended_ns=sent, sent_ns=sent))
        ended_by = draw(st.sampled_from(["server", "harness", "fault"])) if error else "server"
        took = draw(st.sampled_from([1.0, 9.0]))
        ended = ev.RequestEnded(**request, sent_ns=sent, tokens=0 if error else 9, error=error, ended_by=ended_by)
        told.tell(ended, told.now + took)


@st.composite
def by_hand(draw: st.DrawFn, events: Journal) -> Journal:
    """The same as people might have collected it: without a baseline of ours, with levels and loads told."""
    out: list[ev.AnyEvent] = []
    for event in events:
        if isinstance(event, ev.RunStarted):
            out.append(msgspec.structs.replace(event, origin="imported"))
        elif not isinstance(event, ev.HarnessHealth):
            out.append(event)
    last = max(event.t_ns for event in out)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(events[0].t_ns, last))
        level = float(draw(st.integers(0, 20)))
        levels = ev.LevelsTold(
            t_ns=at,
            node=draw(st.sampled_from(["prefill-0", "decode-0"])),
            by="hand",
            samples=(ev.Sample(name=draw(st.sampled_from(["backlog", "tokens"])), labels="", value=level),),
            quiet_s=draw(st.sampled_from([None, 1.0, 5.0])),
        )
        load = ev.LoadTold(t_ns=at, from_ns=max(at - 10**10, 0), sessions=20, goodput=level / 20, failed=0)
        out.append(draw(st.sampled_from([levels, load])))
    return Journal(numbered(sorted(out, key=lambda e: (e.t_ns, isinstance(e, ev.RunEnded)))))


plays = st.one_of(waves(), waves(), node_faults(), spoken(), hung_up())


@st.composite
def journals(draw: st.DrawFn) -> Journal:
    """A run's journal, whole or cut off; or as people would have collected it."""
    told = draw(plays)
    if not draw(st.integers(0, 5)):
        return Journal(told.cut())
    whole = Journal(told.finish(status=draw(st.sampled_from(["completed", "completed", "aborted"]))))
    return draw(by_hand(whole)) if not draw(st.integers(0, 7)) else whole
