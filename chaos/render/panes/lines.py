"""Lines over time: queues, progress, our own lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.render import words
from chaos.render.evidence import labels_that_differ
from chaos.render.metrics import short_name
from chaos.render.panes.pane import LINE_POINTS, MOST_SERIES, ROLES, SERIES_ROLES, KeyEntry, Pane, safe, scatter
from chaos.render.record import SILENT_NS
from chaos.render.thin import SPARSE, thin, unbroken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.render.panes.pane import Json
    from chaos.render.record import Record

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def queues(record: Record) -> Pane:
    """Every queue that ever held something."""
    pane = Pane("Queues (gauges freeze in a wedge)", 140, {"rangemode": "tozero"})
    labels = labels_that_differ(record)
    mine = [(key, points) for key, points in sorted(record.series.items()) if record.uses.of(key[0], key[1]) == "queue"]
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


def progress(record: Record) -> Pane:
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
        xs, ys = _rates([(record.at_s(t_ns), value) for t_ns, value in points])
        if xs:
            _add_line(pane, text, xs, ys)
    return pane


def _rates(points: list[tuple[float, float]], over_s: float = 1.0) -> tuple[list[float], list[float]]:
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


def ourselves(record: Record) -> Pane:
    """What would be our own fault: how late we were, and what a request to ourselves took."""
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


def _add_line(pane: Pane, text: str, xs: list[float], ys: list[float], *, shape: str = "linear") -> None:
    n = len(pane.traces)
    role, dash = SERIES_ROLES[n % len(SERIES_ROLES)], _DASHES[n % len(_DASHES)]
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
        scatter(role, text, x=kept_x[:-1], y=kept_y[:-1], mode="lines", hovertemplate=label,
                 line={"color": ROLES[role], "width": 2, "dash": dash, "shape": shape})
    )  # fmt: skip
