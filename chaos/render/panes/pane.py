"""A pane, one strip of the figure: what it is made of, its colours, and how much is drawn at the most."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

from chaos.render import words

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
SERIES_ROLES = ("s0", "s1", "s2", "s3", "s4", "s5")


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


def safe(text: str, limit: int = 160) -> str:
    """Text for plotly, which reads a little HTML: what came from a log must stay text there, too."""
    return html.escape(words.one_line(text, limit), quote=False)


def lane_axis(lanes: int) -> Trace:
    """The axis of a pane of lanes, which has no numbers."""
    return {"range": [lanes - 0.5, -0.8], "showticklabels": False, "showgrid": False}


def marker(role: str, symbol: str, size: int) -> Trace:
    """The look of a mark."""
    return {"color": ROLES[role], "symbol": symbol, "size": size, "line": {"width": 1.5, "color": ROLES[role]}}


def scatter(role: str, name: str, **more: Json) -> Trace:
    """A trace that carries its role; the page gives it its colour."""
    return {"type": "scatter", "xaxis": "x", "name": safe(name), "meta": {"role": role}, **more}
