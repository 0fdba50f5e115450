"""Sessions by phase, as the agents told it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.render import words
from chaos.render.panes.pane import LINE_POINTS, MOST_SERIES, ROLES, SERIES_ROLES, KeyEntry, Pane, safe, scatter
from chaos.render.record import SILENT_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.render.panes.pane import Json
    from chaos.render.record import Beat, Record


def sessions(record: Record) -> Pane:
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
    spare = iter(SERIES_ROLES * 4)
    shown = [phase for phase in totals if phase not in ("none", "done") and any(totals[phase])]
    shown.sort(key=lambda phase: words.CENSUS_PHASES.index(phase) if phase in words.CENSUS_PHASES else 99)
    for phase in shown[:MOST_SERIES]:
        role = phase if phase in ROLES and phase in words.CENSUS_PHASES else next(spare)
        pane.key.append(KeyEntry(len(pane.traces), role, "area", phase))
        pane.traces.append(
            scatter(role, phase, x=xs, y=list(totals[phase]), mode="lines", stackgroup="sessions",
                     line={"width": 1, "shape": "hv", "color": ROLES[role]},
                     hovertemplate=f"{safe(phase)}: %{{y}}<extra></extra>")
        )  # fmt: skip
    return pane


def _lasts_s(beats: Sequence[Beat], i: int, step: float) -> float:
    """How long a beat speaks for its agent: until the next one, and not past the agent's silence."""
    if i + 1 < len(beats) and beats[i + 1].t_ns - beats[i].t_ns <= SILENT_NS:
        return (beats[i + 1].t_ns - beats[i].t_ns) / 1e9 + step
    return step
