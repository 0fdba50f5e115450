"""The run while it runs: plain lines, the live screen, and what neither may do."""

from __future__ import annotations

import io
import typing

import msgspec
import pytest
import sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live

from chaos.model import events as ev
from chaos.render import LiveView, PlainLines
from chaos.render.live import REFRESH_PER_S
from chaos.render.watch import MOST_KEYS, MOST_OPEN, MOST_WAVES, Watch

STREAMS = {"wedged": sample.wedged_events(), "healthy": sample.healthy_events(), "hostile": sample.hostile_events()}


def plain(events, **more):
    out = io.StringIO()
    lines = PlainLines(out, **more)
    for event in events:
        lines.on_event(event)
    assert lines.missed == 0
    return out.getvalue()


def screen_of(events, width=80, height=24, until_s=None, encoding="utf-8"):
    """What the live view draws after `events`, on a terminal of that size."""
    raw = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    terminal = Console(file=raw, width=width, height=height, force_terminal=True, _environ={"TERM": "xterm"})
    now_ns = 0
    view = LiveView(terminal, clock=lambda: now_ns)
    for event in events:
        if until_s is not None and event.t_ns > sample.Stream.ns(until_s):
            break
        view.on_event(event)
        now_ns = event.t_ns
    assert view.missed == 0
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    paper = Console(file=out, width=width, height=height, legacy_windows=False)
    paper.print(view, height=height)
    out.flush()
    return out.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("name", ["wedged", "healthy"])
def test_plain_lines_say_the_same_as_last_time(name, snapshot):
    snapshot(f"plain-{name}.txt", plain(STREAMS[name]))


QUEUES = {"prefill-0": "prefill_bootstrap_queue", "decode-0": "decode_prealloc_queue"}


def queues_told(*unread: str) -> tuple[str, str]:
    """What the last heartbeat and the live screen say of the queues when these nodes' metrics have failed for long."""
    watched = list(STREAMS["healthy"])[:-1]
    last_ns = max(event.t_ns for event in watched)
    for second in range(1, 31):
        for node, name in QUEUES.items():
            zero = (ev.Sample(name=name, labels="", value=0.0),) if node not in unread else ()
            watched.append(ev.Scrape(t_ns=last_ns + second * 10**9, node=node, ok=bool(zero), samples=zero))
    beat = plain(watched).splitlines()[-1].rpartition("queues ")[2]
    return beat, screen_of(watched, width=160, height=60)


def test_queues_that_nobody_could_read_of_late_are_unknown_and_never_empty():
    beat, screen = queues_told()
    assert beat == "empty"
    assert "unknown" not in screen
    beat, screen = queues_told("decode-0")
    assert beat == "decode-0 unknown"
    assert "decode-0: unknown" in screen
    beat, _ = queues_told("prefill-0", "decode-0")
    assert beat == "unknown"


@pytest.mark.parametrize(("moment_s", "name"), [(13.5, "load"), (40.0, "recovery")])
def test_the_live_screen_says_the_same_as_last_time_at_80_columns(moment_s, name, snapshot):
    snapshot(f"live-{name}.txt", screen_of(STREAMS["wedged"], until_s=moment_s))


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (40, 6), (20, 3), (200, 60), (10, 2)])
@pytest.mark.parametrize("name", STREAMS)
def test_the_live_screen_fits_every_terminal(name, size):
    width, height = size
    lines = screen_of(STREAMS[name], width, height).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_what_matters_most_stays_when_the_screen_is_small():
    text = screen_of(STREAMS["wedged"], 80, 5, until_s=40)
    assert "RECOVERY" in text
    assert "overdue" in text
    assert "FATAL prefill-0" in text


def test_the_live_screen_is_ascii_where_the_terminal_is():
    assert screen_of(STREAMS["wedged"], encoding="ascii").isascii()


def test_a_killed_agent_takes_its_sessions_with_it():
    assert "waiting" in screen_of(STREAMS["wedged"], until_s=14.0)
    assert "no load" in screen_of(STREAMS["wedged"], until_s=18.0)


def test_an_overdue_canary_turns_a_path_red_and_a_younger_pass_green_again():
    stream = sample.Stream()
    stream.canary("routed", 1.0, 5.0, n=1)
    stream.canary("routed", 4.0, 0.2, n=2)
    watch = Watch()
    colours = {}
    for event in stream:
        watch.feed(event)
        colours[round((event.t_ns - sample.BOOT_NS) / 1e9, 1)] = watch.paths["routed"].colour
    assert {1.0: "none", 3.0: "red", 4.0: "red", 4.2: "green", 6.0: "green"} == colours


def test_plain_lines_beat_every_ten_seconds_even_when_nothing_happens():
    stream = sample.Stream()
    for tick in range(120):
        stream.add(ev.HarnessHealth, tick * 0.5, who="harness", lag_max_ms=1.0)
    beats = [line for line in plain(stream).splitlines() if " .. " in line]
    assert 5 == len(beats)


def test_plain_lines_tell_of_a_hole_in_the_journal():
    events = [event for event in STREAMS["wedged"] if event.seq not in (10, 11)]
    assert "2 events missing before this" in plain(events)


def test_a_known_line_is_told_once_and_not_a_thousand_times():
    text = plain(STREAMS["wedged"])
    assert 1 == text.count("FATAL prefill-0")
    assert 1 == text.count("log       abort prefill-0")


def test_hostile_text_makes_no_line_of_its_own_and_steers_no_terminal():
    text = plain(STREAMS["hostile"])
    assert not {c for c in text if ord(c) < 32 and c != "\n"}
    assert all(line[8] == "s" for line in text.splitlines())


@pytest.mark.parametrize("failure", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed")])
def test_plain_lines_go_on_when_nobody_reads_any_more(failure):
    class Gone(io.StringIO):
        def write(self, text):
            raise failure

    lines = PlainLines(Gone())
    for event in STREAMS["wedged"]:
        lines.on_event(event)
    assert lines.missed == 0


def test_a_pipe_gets_plain_lines_from_the_live_view():
    out = io.StringIO()
    with LiveView(Console(file=out, width=80)) as view:
        for event in STREAMS["healthy"]:
            view.on_event(event)
    assert plain(STREAMS["healthy"]) == out.getvalue()


def test_a_dumb_terminal_gets_plain_lines_from_the_live_view():
    out = io.StringIO()
    with LiveView(Console(file=out, width=80, force_terminal=True, _environ={"TERM": "dumb"})) as view:
        for event in STREAMS["healthy"]:
            view.on_event(event)
    assert "phase     baseline" in out.getvalue()


def test_a_terminal_gets_a_screen_that_is_gone_afterwards():
    out = io.StringIO()
    terminal = Console(file=out, width=80, height=24, force_terminal=True, _environ={"TERM": "xterm"})
    with LiveView(terminal) as view:
        for event in STREAMS["wedged"]:
            view.on_event(event)
    assert view.missed == 0
    assert out.getvalue().endswith("\x1b[2K\x1b[1A\x1b[2K") or "\x1b[2K" in out.getvalue()
    assert REFRESH_PER_S <= 4


def test_a_terminal_that_goes_away_does_not_stop_the_run(monkeypatch):
    view = LiveView(Console(file=io.StringIO(), width=80, force_terminal=True, _environ={"TERM": "xterm"}))

    def gone(self):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Live, "stop", gone)
    real_stop = view._live.stop
    with pytest.raises(OSError, match="Input/output"):
        real_stop()
    view.__exit__(None, None, None)
    assert view._live is None


def test_memory_stays_bounded_however_many_names_a_run_has():
    watch = Watch()
    for i in range(5000):
        watch.feed(ev.RequestStarted(t_ns=i, req=f"r{i}", kind="canary", path=f"p{i % 500}", intended_ns=i))
        watch.feed(ev.Liveness(t_ns=i, node=f"n{i}", endpoint="/health", status=200, took_ms=1))
        watch.feed(ev.HarnessHealth(t_ns=i, who=f"agent:{i}", lag_max_ms=1, phases={"waiting": 1}))
        watch.feed(ev.WaveCensus(t_ns=i, wave=f"w{i}", phases={"waiting": 1}))
        watch.feed(ev.WaveFired(t_ns=i, wave=f"w{i}", how="rst", ordered_ns=i))
    assert max(map(len, (watch.paths, watch.liveness, watch.sessions, watch.census))) <= MOST_KEYS
    assert len(watch.open) <= MOST_OPEN
    assert len(watch.waves) <= MOST_WAVES
    assert watch.waves_fired == 5000


def random_events():
    """Any event with any content of the right types, in any order."""
    names = st.sampled_from(["a", "prefill-0", "decode-0", "", "routed", "r1", sample.HOSTILE])
    numbers = st.integers(-(2**40), 2**40)

    plain_kinds = {
        str: names, int: numbers, float: st.floats(), bool: st.booleans(), type(None): st.none(),
    }  # fmt: skip

    def of(kind):
        if kind in plain_kinds:
            return plain_kinds[kind]
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        special = {
            typing.Literal: lambda: st.sampled_from(args),
            tuple: lambda: st.lists(of(args[0]), max_size=3).map(tuple),
            dict: lambda: st.dictionaries(of(args[0]), of(args[1]), max_size=3),
        }
        if origin in special:
            return special[origin]()
        return st.one_of(*map(of, args)) if args else build(kind)

    def build(struct):
        hints = typing.get_type_hints(struct)
        return st.fixed_dictionaries({f.name: of(hints[f.name]) for f in msgspec.structs.fields(struct)}).map(
            lambda values: struct(**values)
        )

    return st.one_of(*map(build, typing.get_args(ev.AnyEvent)))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(random_events(), max_size=12))
def test_no_stream_of_events_whatsoever_is_too_much_for_the_views(events):
    screen_of(events)
    plain(events)


def test_an_event_that_is_no_event_is_counted_and_not_raised():
    view = LiveView(Console(file=io.StringIO()))
    view.on_event("no event")
    assert view._plain.missed == 1
