"""The panes of the timeline: what each strip of the figure draws, as plotly traces that carry a role."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.render import words
from chaos.render.evidence import labels_that_differ
from chaos.render.metrics import short_name
from chaos.render.record import SILENT_NS, STATES
from chaos.render.thin import SPARSE, even, thin, unbroken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.render.record import Beat, Canary, Hit, Record

Json = str | int | float | bool | None | Sequence["Json"] | dict[str, "Json"]
Trace = dict[str, Json]

LINE_POINTS = 1200  # per series: more than a screen has columns
MOST_MARKS = 1500  # canaries per state and path
MOST_SERIES = 24  # per pane
MOST_LANES = 24
LANE_PX = 30

# The palette is Okabe and Ito's, which stays apart for every kind of colour blindness; page.css has the dark variants.
ROLES = {
    "pass": "#0072B2", "late": "#9A6700", "fail": "#D55E00", "never": "#A8185A",
    "s0": "#0072B2", "s1": "#D55E00", "s2": "#00795A", "s3": "#A8185A", "s4": "#9A6700", "s5": "#3D8FBF",
    "waiting": "#9A6700", "streaming": "#00795A", "thinking": "#3D8FBF", "connecting": "#A8185A",
    "wave": "#D55E00", "ink": "#1b1f24",
}  # fmt: skip
_STATE_LOOKS = {
    "in time": ("pass", "circle", 6),
    "late": ("late", "triangle-up", 10),
    "failed": ("fail", "x", 9),
    "never finished": ("never", "diamond-open", 9),
}
_HIT_LOOKS = {
    "fatal": ("fail", "x", 12),
    "crash": ("fail", "star", 12),
    "traceback": ("late", "diamond", 9),
    "abort": ("s0", "line-ns-open", 9),
    "timeout": ("late", "hourglass", 9),
    "restart": ("s2", "star-diamond", 10),
}
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SERIES_ROLES = ("s0", "s1", "s2", "s3", "s4", "s5")


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One line of the key below the figure."""

    trace: int  # ordinal in the figure, for hiding it
    role: str
    mark: str  # a plotly symbol name, or `line-` and a dash name
    text: str


@dataclass(slots=True)
class Pane:
    """One strip of the figure."""

    title: str
    height: int
    axis: Trace = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)
    lanes: list[str] = field(default_factory=list)
    key: list[KeyEntry] = field(default_factory=list)
    note: str = ""


def build_panes(record: Record) -> list[Pane]:
    """Every pane that has something to draw, from top to bottom."""
    panes = (
        _lanes(record),
        _latency(record),
        _sessions(record),
        _lines(record, "queue", "Queues (gauges freeze in a wedge)"),
        _progress(record),
        _log(record),
        _ourselves(record),
    )
    return [pane for pane in panes if pane.traces]


def safe(text: str, limit: int = 160) -> str:
    """Text for plotly, which reads a little HTML: what came from a log must stay text there, too."""
    return html.escape(words.one_line(text, limit), quote=False)


def _lane_axis(lanes: int) -> Trace:
    return {"range": [lanes - 0.5, -0.8], "showticklabels": False, "showgrid": False}


def _marker(role: str, symbol: str, size: int) -> Trace:
    return {"color": ROLES[role], "symbol": symbol, "size": size, "line": {"width": 1.5, "color": ROLES[role]}}


def _scatter(role: str, name: str, **more: Json) -> Trace:
    return {"type": "scatter", "xaxis": "x", "name": safe(name), "meta": {"role": role}, **more}


def _by_path(record: Record) -> list[tuple[str, list[Canary]]]:
    paths: dict[str, list[Canary]] = {}
    for canary in record.canaries:
        paths.setdefault(canary.path, []).append(canary)
    bad_first = sorted(paths.items(), key=lambda item: (all(c.state == "in time" for c in item[1]), item[0]))
    return bad_first[:MOST_LANES]


def _lanes(record: Record) -> Pane:
    """One lane per path: a dot for each canary where it began, and a bar for as long as it was waited for."""
    paths = _by_path(record)
    pane = Pane("Fresh requests (canaries) per path", LANE_PX * len(paths) + 12, _lane_axis(len(paths)))
    pane.lanes = [path for path, _ in paths]
    for state in STATES:
        role, symbol, size = _STATE_LOOKS[state]
        xs: list[Json] = []
        ys: list[Json] = []
        text: list[Json] = []
        bar_x: list[Json] = []
        bar_y: list[Json] = []
        for lane, (path, canaries) in enumerate(paths):
            for canary in even([c for c in canaries if c.state == state], MOST_MARKS // max(1, len(paths)) + 1):
                began, ended = record.at_s(canary.sent_ns), record.at_s(canary.end_ns or record.last_ns)
                xs.append(began)
                ys.append(lane)
                text.append(_canary_text(path, canary, record.last_ns))
                bar_x += [began, ended, None]
                bar_y += [lane, lane, None]
        if not xs:
            continue
        if state != "in time":
            dash = "dot" if state == "never finished" else "solid"
            line: Json = {"color": ROLES[role], "width": 3, "dash": dash}
            pane.traces.append(
                _scatter(role, state, x=bar_x, y=bar_y, mode="lines", hoverinfo="skip", opacity=0.55, line=line)
            )
        pane.key.append(KeyEntry(len(pane.traces), role, symbol, f"canary {state}"))
        pane.traces.append(
            _scatter(role, state, x=xs, y=ys, text=text, mode="markers", marker=_marker(role, symbol, size),
                     hovertemplate="%{text}<extra></extra>")
        )  # fmt: skip
    shown = sum(len(canaries) for _, canaries in paths)
    if shown > MOST_MARKS:
        pane.note = f"Of {len(record.canaries)} canaries at most {MOST_MARKS} per state are drawn."
    return pane


def _canary_text(path: str, canary: Canary, until_ns: int) -> str:
    took = words.span(canary.took_s(until_ns))
    verb = "open for" if canary.state == "never finished" else "after"
    error = f": {safe(canary.error, 60)}" if canary.error else ""
    return f"{safe(path, 48)}<br>{canary.state} {verb} {took}{error}<br>event {canary.seq}"


def _latency(record: Record) -> Pane:
    pane = Pane("Canary latency (s; never finished: age)", 130, {"type": "log", "dtick": 1})
    for state in STATES:
        role, symbol, size = _STATE_LOOKS[state]
        mine = even([c for c in record.canaries if c.state == state], MOST_MARKS)
        if not mine:
            continue
        pane.traces.append(
            _scatter(role, state, x=[record.at_s(c.sent_ns) for c in mine],
                     y=[round(max(0.001, c.took_s(record.last_ns)), 4) for c in mine],
                     text=[_canary_text(c.path, c, record.last_ns) for c in mine], mode="markers",
                     marker=_marker(role, symbol, max(5, size - 2)), hovertemplate="%{text}<extra></extra>")
        )  # fmt: skip
    if pane.traces and record.started:
        deadline = max(0.001, words.finite(record.plan.canary_deadline_s))
        pane.key.append(KeyEntry(len(pane.traces), "ink", "line-dash", f"deadline {words.span(deadline)}"))
        ends: list[Json] = [0, record.at_s(record.last_ns)]
        pane.traces.append(_scatter("ink", "deadline", x=ends, y=[deadline, deadline], mode="lines", hoverinfo="skip",
                                    line={"color": ROLES["ink"], "width": 1, "dash": "dash"}))  # fmt: skip
    return pane


def _sessions(record: Record) -> Pane:
    """Sessions by phase, stacked; an agent that is no longer heard of has none."""
    pane = Pane("Sessions by phase", 100, {"rangemode": "tozero"})
    agents = {who: beats for who, beats in record.beats.items() if any(beat.phases for beat in beats)}
    end = record.at_s(record.last_ns)
    if not agents or end <= 0:
        return pane
    step = max(0.5, end / LINE_POINTS)
    bins = int(end / step) + 1
    totals: dict[str, list[float]] = {}
    for beats in agents.values():
        at = 0
        for i in range(bins):
            now = i * step
            while at < len(beats) and record.at_s(beats[at].t_ns) <= now:
                at += 1
            if at and now < record.at_s(beats[at - 1].t_ns) + _lasts_s(beats, at - 1, step):
                for phase, n in beats[at - 1].phases.items():
                    totals.setdefault(phase, [0.0] * bins)[i] += n
    xs: list[Json] = [round(i * step, 3) for i in range(bins)]
    spare = iter(_SERIES_ROLES * 4)
    shown = [phase for phase in totals if phase not in ("none", "done") and any(totals[phase])]
    shown.sort(key=lambda phase: words.CENSUS_PHASES.index(phase) if phase in words.CENSUS_PHASES else 99)
    for phase in shown[:MOST_SERIES]:
        role = phase if phase in ROLES and phase in words.CENSUS_PHASES else next(spare)
        pane.key.append(KeyEntry(len(pane.traces), role, "area", phase))
        pane.traces.append(
            _scatter(role, phase, x=xs, y=list(totals[phase]), mode="lines", stackgroup="sessions",
                     line={"width": 1, "shape": "hv", "color": ROLES[role]},
                     hovertemplate=f"{safe(phase)}: %{{y}}<extra></extra>")
        )  # fmt: skip
    return pane


def _lasts_s(beats: Sequence[Beat], i: int, step: float) -> float:
    """How long a beat speaks for its agent: until the next one, and not past the agent's silence."""
    if i + 1 < len(beats) and beats[i + 1].t_ns - beats[i].t_ns <= SILENT_NS:
        return (beats[i + 1].t_ns - beats[i].t_ns) / 1e9 + step
    return step


def _lines(record: Record, kind: str, title: str) -> Pane:
    pane = Pane(title, 140, {"rangemode": "tozero"})
    labels = labels_that_differ(record)
    mine = [(key, points) for key, points in sorted(record.series.items()) if record.uses.of(key[0], key[1]) == kind]
    ever = [(key, points) for key, points in mine if any(value for _, value in points)]
    for key, points in ever[:MOST_SERIES]:
        node, name, _ = key
        text = " ".join(part for part in (node, short_name(name, node), labels[key]) if part)
        xs = [record.at_s(t_ns) for t_ns, _ in points]
        _add_line(pane, text, xs, [value for _, value in points], shape="hv")
    left = len(mine) - len(ever[:MOST_SERIES])
    if left:
        pane.note = f"{words.count(left, 'queue gauge')} that stayed at zero or did not fit are not drawn."
    return pane


def _add_line(pane: Pane, text: str, xs: list[float], ys: list[float], *, shape: str = "linear") -> None:
    n = len(pane.traces)
    role, dash = _SERIES_ROLES[n % len(_SERIES_ROLES)], _DASHES[n % len(_DASHES)]
    most = LINE_POINTS if n < SPARSE else LINE_POINTS // 4
    kept_x: list[Json] = []
    kept_y: list[Json] = []
    stretches = unbroken(xs, SILENT_NS / 1e9)
    for start, stop in stretches:
        some_x, some_y = thin(xs[start:stop], ys[start:stop], max(4, most // len(stretches)))
        kept_x += [*some_x, None]
        kept_y += [*some_y, None]
    pane.key.append(KeyEntry(n, role, f"line-{dash}", text))
    label = f"{safe(text)}: %{{y}}<extra></extra>"
    pane.traces.append(
        _scatter(role, text, x=kept_x[:-1], y=kept_y[:-1], mode="lines", hovertemplate=label,
                 line={"color": ROLES[role], "width": 2, "dash": dash, "shape": shape})
    )  # fmt: skip


def _progress(record: Record) -> Pane:
    """Tokens per second: what the engines say they make, and what our own sessions receive."""
    pane = Pane("Progress (tokens/s)", 120, {"rangemode": "tozero"})
    labels = labels_that_differ(record)
    sources: list[tuple[str, list[tuple[int, float]]]] = [
        (f"received by {who}", [(beat.t_ns, float(beat.tokens)) for beat in beats])
        for who, beats in sorted(record.beats.items())
        if any(beat.tokens for beat in beats)
    ]
    for key, points in sorted(record.series.items()):
        if record.uses.of(key[0], key[1]) == "progress" and points[-1][1] != points[0][1]:
            sources.append((" ".join(part for part in (key[0], key[1].replace("_", " "), labels[key]) if part), points))
    for text, points in sources[:MOST_SERIES]:
        xs, ys = rates([(record.at_s(t_ns), value) for t_ns, value in points])
        if xs:
            _add_line(pane, text, xs, ys)
    return pane


def rates(points: list[tuple[float, float]], over_s: float = 1.0) -> tuple[list[float], list[float]]:
    """Rise per second of a counter over at least `over_s`; a counter that fell (a restart) leaves a zero."""
    xs: list[float] = []
    ys: list[float] = []
    if not points:
        return xs, ys
    last_t, last_v = points[0]
    for at_s, value in points[1:]:
        if at_s - last_t < over_s:
            continue
        xs.append(at_s)
        ys.append(round(max(0.0, value - last_v) / (at_s - last_t), 2))
        last_t, last_v = at_s, value
    return xs, ys


def _log(record: Record) -> Pane:
    hits = [hit for hit in record.hits if hit.klass != "benign"]
    nodes = sorted({hit.node for hit in hits})[:MOST_LANES]
    pane = Pane("Known log lines per node", LANE_PX * len(nodes) + 12, _lane_axis(len(nodes)))
    pane.lanes = nodes
    by_class: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.node in nodes:
            by_class.setdefault(hit.klass, []).append(hit)
    for klass, mine in sorted(by_class.items(), key=lambda item: item[0] in _HIT_LOOKS):
        role, symbol, size = _HIT_LOOKS.get(klass, ("s5", "square-open", 8))
        drawn = even(mine, MOST_MARKS // 3)
        pane.key.append(KeyEntry(len(pane.traces), role, symbol, klass))
        xs: list[Json] = [record.at_s(hit.t_ns) for hit in drawn]
        pane.traces.append(
            _scatter(role, klass, x=xs, y=[nodes.index(hit.node) for hit in drawn],
                     text=[_hit_text(hit) for hit in drawn], mode="markers", marker=_marker(role, symbol, size),
                     hovertemplate="%{text}<extra></extra>")
        )  # fmt: skip
    return pane


def _hit_text(hit: Hit) -> str:
    return (
        f"{safe(hit.klass)} on {safe(hit.node, 40)}<br>{safe(hit.title, 80)}<br>{safe(hit.line, 90)}<br>event {hit.seq}"
    )


def _ourselves(record: Record) -> Pane:
    pane = Pane("Ourselves: lag, reference request (ms)", 90, {"rangemode": "tozero"})
    beats: Mapping[str, list[tuple[float, float]]] = {
        who: [(record.at_s(beat.t_ns), beat.lag_ms) for beat in mine] for who, mine in record.beats.items()
    }
    reference = [(record.at_s(b.t_ns), b.reference_ms) for b in record.beats.get("harness", []) if b.reference_ms]
    for who, points in [*sorted(beats.items())[:MOST_SERIES], ("reference request", reference)]:
        if points:
            _add_line(pane, f"lag of {who}" if points is not reference else who, [p[0] for p in points],
                      [round(p[1], 2) for p in points])  # fmt: skip
    return pane
