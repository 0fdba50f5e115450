"""Canaries: a lane for each path, and how long they took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.render import words
from chaos.render.panes.pane import (
    LANE_PX,
    MOST_LANES,
    MOST_MARKS,
    ROLES,
    KeyEntry,
    Pane,
    lane_axis,
    marker,
    safe,
    scatter,
)
from chaos.render.record import STATES
from chaos.render.thin import even

if TYPE_CHECKING:
    from chaos.render.panes.pane import Json
    from chaos.render.record import Canary, Record

_STATE_LOOKS = {
    "in time": ("pass", "circle", 6),
    "late": ("late", "triangle-up", 10),
    "failed": ("fail", "x", 9),
    "never finished": ("never", "diamond-open", 9),
}


def lanes(record: Record) -> Pane:
    """One lane per path: a dot for each canary where it began, and a bar for as long as it was waited for."""
    paths = _by_path(record)
    pane = Pane("Fresh requests (canaries) per path", LANE_PX * len(paths) + 12, lane_axis(len(paths)))
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
                scatter(role, state, x=bar_x, y=bar_y, mode="lines", hoverinfo="skip", opacity=0.55, line=line)
            )
        pane.key.append(KeyEntry(len(pane.traces), role, symbol, f"canary {state}"))
        pane.traces.append(
            scatter(role, state, x=xs, y=ys, text=text, mode="markers", marker=marker(role, symbol, size),
                     hovertemplate="%{text}<extra></extra>")
        )  # fmt: skip
    shown = sum(len(canaries) for _, canaries in paths)
    if shown > MOST_MARKS:
        pane.note = f"Of {len(record.canaries)} canaries at most {MOST_MARKS} per state are drawn."
    return pane


def _by_path(record: Record) -> list[tuple[str, list[Canary]]]:
    paths: dict[str, list[Canary]] = {}
    for canary in record.canaries:
        paths.setdefault(canary.path, []).append(canary)
    bad_first = sorted(paths.items(), key=lambda item: (all(c.state == "in time" for c in item[1]), item[0]))
    return bad_first[:MOST_LANES]


def latency(record: Record) -> Pane:
    """How long each canary took, on a logarithmic axis."""
    pane = Pane("Canary latency (s; never finished: age)", 130, {"type": "log", "dtick": 1})
    for state in STATES:
        role, symbol, size = _STATE_LOOKS[state]
        mine = even([c for c in record.canaries if c.state == state], MOST_MARKS)
        if not mine:
            continue
        pane.traces.append(
            scatter(role, state, x=[record.at_s(c.sent_ns) for c in mine],
                     y=[round(max(0.001, c.took_s(record.last_ns)), 4) for c in mine],
                     text=[_canary_text(c.path, c, record.last_ns) for c in mine], mode="markers",
                     marker=marker(role, symbol, max(5, size - 2)), hovertemplate="%{text}<extra></extra>")
        )  # fmt: skip
    if pane.traces and record.started:
        deadline = max(0.001, words.finite(record.plan.canary_deadline_s))
        pane.key.append(KeyEntry(len(pane.traces), "ink", "line-dash", f"deadline {words.span(deadline)}"))
        ends: list[Json] = [0, record.at_s(record.last_ns)]
        pane.traces.append(scatter("ink", "deadline", x=ends, y=[deadline, deadline], mode="lines", hoverinfo="skip",
                                    line={"color": ROLES["ink"], "width": 1, "dash": "dash"}))  # fmt: skip
    return pane


def _canary_text(path: str, canary: Canary, until_ns: int) -> str:
    took = words.span(canary.took_s(until_ns))
    verb = "open for" if canary.state == "never finished" else "after"
    error = f": {safe(canary.error, 60)}" if canary.error else ""
    return f"{safe(path, 48)}<br>{canary.state} {verb} {took}{error}<br>event {canary.seq}"
