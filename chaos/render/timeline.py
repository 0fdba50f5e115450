"""The timeline as a plotly figure: every pane shares one time axis, so cause and effect stand above each other.

The figure is plain data in plotly.js's own schema. A trace names its part in `meta.role`; the page gives each role its
colour for light, dark and paper from the style sheet, and never by colour alone: markers and dashes differ too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from chaos.render import words
from chaos.render.panes import build_panes
from chaos.render.panes.pane import ROLES, KeyEntry, safe

if TYPE_CHECKING:
    from chaos.render.panes.pane import Json
    from chaos.render.record import Record

GAP_PX = 34  # room for a pane's title
TOP_PX = 46
BOTTOM_PX = 48


@dataclass(frozen=True, slots=True)
class Timeline:
    """The figure and what is needed to read it without colour."""

    figure: dict[str, Json]
    height: int
    key: tuple[tuple[str, tuple[KeyEntry, ...]], ...]
    notes: tuple[str, ...]


def build_timeline(record: Record) -> Timeline:
    """The figure of a whole run."""
    panes = build_panes(record)
    height = TOP_PX + BOTTOM_PX + sum(pane.height + GAP_PX for pane in panes)
    plot = max(1, height - TOP_PX - BOTTOM_PX)
    data: list[Json] = []
    layout: dict[str, Json] = _frame(height)
    notes: list[Json] = []
    top = 0
    keys = []
    for i, pane in enumerate(panes, 1):
        name = "y" if i == 1 else f"y{i}"
        top += GAP_PX
        domain = [1 - (top + pane.height) / plot, 1 - top / plot]
        axis: dict[str, Json] = {"domain": [max(0.0, domain[0]), domain[1]], "zeroline": False, "fixedrange": True}
        layout[f"yaxis{'' if i == 1 else i}"] = {**axis, **pane.axis}
        notes.append(_title(pane.title, domain[1]))
        notes += [_lane_label(lane, k, name) for k, lane in enumerate(pane.lanes)]
        first = len(data)
        data += [{**trace, "yaxis": name} for trace in pane.traces]
        keys.append((pane.title, tuple(_shifted(entry, first) for entry in pane.key)))
        top += pane.height
    shapes, marks = _marks(record)
    layout["xaxis"] = {**_time_axis(record), "anchor": "y" if len(panes) < 2 else f"y{len(panes)}"}
    layout["meta"] = {"phase_s": _phase_spans(record)}  # a phase's name is shown where its phase is wide enough
    layout["shapes"] = shapes
    layout["annotations"] = [*notes, *marks]
    texts = tuple(pane.note for pane in panes if pane.note)
    return Timeline({"data": data, "layout": layout}, height, tuple(keys), texts)


def _shifted(entry: KeyEntry, by: int) -> KeyEntry:
    return KeyEntry(entry.trace + by, entry.role, entry.mark, entry.text)


def _frame(height: int) -> dict[str, Json]:
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 52, "r": 14, "t": TOP_PX, "b": BOTTOM_PX, "pad": 0},
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": "zoom",
        "font": {"size": 12, "color": ROLES["ink"]},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"align": "left"},
    }


def _time_axis(record: Record) -> dict[str, Json]:
    end = max(record.at_s(record.last_ns), 0.001)
    return {
        "range": [-end * 0.01, end * 1.01],
        "title": {"text": "seconds since the run began"},
        "zeroline": False,
        "showspikes": True,
        "spikemode": "across",
        "spikethickness": 1,
        "spikedash": "dot",
        "spikesnap": "cursor",
    }


def _title(text: str, y: float) -> Json:
    return {"text": f"<b>{safe(text)}</b>", "name": "title", "xref": "paper", "yref": "paper", "x": 0, "y": y,
            "xanchor": "left", "yanchor": "bottom", "yshift": 3, "showarrow": False, "align": "left"}  # fmt: skip


def _lane_label(lane: str, k: int, axis: str) -> Json:
    return {"text": safe(lane, 48), "name": "lane", "xref": "paper", "yref": axis, "x": 0, "y": k - 0.42,
            "xanchor": "left", "yanchor": "middle", "xshift": 4, "showarrow": False, "font": {"size": 11}}  # fmt: skip


def _marks(record: Record) -> tuple[list[Json], list[Json]]:
    """Phases as alternating shade with their names, faults as shaded spans that last while the dust settles."""
    shapes: list[Json] = []
    notes: list[Json] = []
    end = record.at_s(record.last_ns)
    starts = [(record.at_s(t_ns), phase) for t_ns, phase in record.phases]
    for i, (at_s, phase) in enumerate(starts):
        until = starts[i + 1][0] if i + 1 < len(starts) else end
        if i % 2:
            shapes.append(_shade("phase", at_s, until, "rgba(127,127,127,0.09)"))
        notes.append(_above("phase", safe(phase), (at_s + until) / 2, 4, "center"))
    waves = 0
    for fault in record.disruptions:
        at_s = record.at_s(fault.from_ns)
        settled = record.at_s(fault.until_ns) + max(words.finite(record.plan.settle_s), end * 0.004)
        until = end if fault.stands else min(end, settled)
        waves += not fault.nodes
        label = f"{fault.name}: {', '.join(fault.nodes)}" if fault.nodes else f"wave {waves}"
        line: Json = {"width": 2, "color": ROLES["wave"]}
        shapes.append(_shade("wave", at_s, until, "rgba(213,94,0,0.20)"))
        shapes.append({**_shade("wave", at_s, at_s, ""), "type": "line", "layer": "above", "line": line})
        notes.append(_above("wave", f"<b>{safe(label, 48)}</b>", at_s, 20, "left"))
    return shapes, notes


def _shade(name: str, from_s: float, to_s: float, fill: str) -> dict[str, Json]:
    shape: dict[str, Json] = {"type": "rect", "name": name, "layer": "below", "xref": "x", "yref": "paper",
                              "x0": from_s, "x1": to_s, "y0": 0, "y1": 1, "line": {"width": 0}}  # fmt: skip
    return {**shape, "fillcolor": fill} if fill else shape


def _above(name: str, text: str, at_s: float, shift: int, anchor: str) -> Json:
    return {"text": text, "name": name, "xref": "x", "yref": "paper", "x": at_s, "y": 1, "xanchor": anchor,
            "yanchor": "bottom", "yshift": shift, "showarrow": False, "font": {"size": 11}}  # fmt: skip


def _phase_spans(record: Record) -> list[Json]:
    starts = [record.at_s(t_ns) for t_ns, _ in record.phases]
    return [round(end - begin, 3) for begin, end in pairwise([*starts, record.at_s(record.last_ns)])]
