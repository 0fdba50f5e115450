"""Known log lines, a lane for each node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.render.panes.pane import LANE_PX, MOST_LANES, MOST_MARKS, KeyEntry, Pane, lane_axis, marker, safe, scatter
from chaos.render.thin import even

if TYPE_CHECKING:
    from chaos.render.panes.pane import Json
    from chaos.render.record import Hit, Record

_HIT_LOOKS = {
    "fatal": ("fail", "x", 12),
    "crash": ("fail", "star", 12),
    "traceback": ("late", "diamond", 9),
    "abort": ("s0", "line-ns-open", 9),
    "timeout": ("late", "triangle-down", 9),
    "restart": ("s2", "star-diamond", 10),
}


def log_lines(record: Record) -> Pane:
    """A mark for each line that a pack knows, harmless ones left out."""
    hits = [hit for hit in record.hits if hit.klass != "benign"]
    nodes = sorted({hit.node for hit in hits})[:MOST_LANES]
    pane = Pane("Known log lines per node", LANE_PX * len(nodes) + 12, lane_axis(len(nodes)))
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
            scatter(role, klass, x=xs, y=[nodes.index(hit.node) for hit in drawn],
                     text=[_hit_text(hit) for hit in drawn], mode="markers", marker=marker(role, symbol, size),
                     hovertemplate="%{text}<extra></extra>")
        )  # fmt: skip
    return pane


def _hit_text(hit: Hit) -> str:
    return (
        f"{safe(hit.klass)} on {safe(hit.node, 40)}<br>{safe(hit.title, 80)}<br>{safe(hit.line, 90)}<br>event {hit.seq}"
    )
