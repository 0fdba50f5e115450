"""The evidence table: what every probe saw before, during and after the waves, side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from chaos.render import words
from chaos.render.record import STATES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.render.record import Canary, Points, Record

NOTHING = "nothing seen"  # a probe that saw nothing is no evidence, and the table says so


@dataclass(frozen=True, slots=True)
class Period:
    """A part of the run; `to_ns` is exclusive."""

    name: str
    from_ns: int
    to_ns: int

    def __contains__(self, t_ns: int) -> bool:
        """Whether a moment lies in it."""
        return self.from_ns <= t_ns < self.to_ns


@dataclass(frozen=True, slots=True)
class Row:
    """One thing observed, with a cell for each period."""

    topic: str
    what: str
    cells: tuple[str, ...]


def periods(record: Record) -> tuple[Period, ...]:
    """Before the first fault, from it until the dust has settled after the last one, and after; or the whole run."""
    end = record.last_ns + 1
    if not record.disruptions:
        return (Period("whole run", record.first_ns, end),)
    first = min(fault.from_ns for fault in record.disruptions)
    last = max(fault.until_ns for fault in record.disruptions)
    settled = min(end, last + max(1, round(words.finite(record.plan.settle_s) * 1e9)))
    return (
        Period("before", record.first_ns, first),
        Period("during", first, settled),
        Period("after", settled, end),
    )


def evidence_rows(record: Record) -> list[Row]:
    """Every row of the table, by topic."""
    parts = periods(record)
    return [
        *_canaries(record, parts),
        *_liveness(record, parts),
        *_series(record, parts, "queue"),
        *_series(record, parts, "progress"),
        *_load(record, parts),
        *_series(record, parts, "aborts"),
        *_hits(record, parts),
        *_processes(record, parts),
        *_ourselves(record, parts),
    ]


def _row(topic: str, what: str, cells: Iterable[str]) -> Row:
    return Row(topic, words.one_line(what, 160), tuple(cells))


def _canaries(record: Record, parts: tuple[Period, ...]) -> Iterable[Row]:
    by_path: dict[str, list[Canary]] = {}
    for canary in record.canaries:
        by_path.setdefault(canary.path, []).append(canary)
    for path, canaries in sorted(by_path.items()):
        yield _row("canaries", path, (_fared([c for c in canaries if c.sent_ns in part]) for part in parts))


def _fared(canaries: list[Canary]) -> str:
    if not canaries:
        return NOTHING
    states = Counter(canary.state for canary in canaries)
    parts = [f"{states['in time']} of {len(canaries)} in time"]
    parts += [f"{states[state]} {state}" for state in STATES[1:] if states[state]]
    took = [canary.took_s(canary.sent_ns) for canary in canaries if canary.state == "in time"]
    if took:
        parts.append(f"p50 {words.span(median(took))}")
    return ", ".join(parts)


def _liveness(record: Record, parts: tuple[Period, ...]) -> Iterable[Row]:
    asked = sorted({(event.node, event.endpoint) for event in record.liveness})
    for node, endpoint in asked:
        mine = [event for event in record.liveness if (event.node, event.endpoint) == (node, endpoint)]
        cells = []
        for part in parts:
            said = Counter(
                "no answer" if event.status is None else str(event.status) for event in mine if event.t_ns in part
            )
            cells.append(", ".join(f"{status} \u00d7{n}" for status, n in sorted(said.items())) or NOTHING)
        yield _row("liveness", f"{node} {endpoint}", cells)


def labels_that_differ(record: Record) -> dict[tuple[str, str, str], str]:
    """For each series, the labels that tell it from its sisters: ranks and modes, not the model's name."""
    sisters: dict[tuple[str, str], list[set[str]]] = {}
    for node, name, labels in record.series:
        sisters.setdefault((node, name), []).append(set(labels.split(",")))
    shown = {}
    for node, name, labels in record.series:
        common = set.intersection(*sisters[node, name])
        shown[node, name, labels] = ",".join(label for label in labels.split(",") if label not in common)
    return shown


def _series(record: Record, parts: tuple[Period, ...], kind: str) -> Iterable[Row]:
    labels = labels_that_differ(record)
    cell = _level if kind == "queue" else _rate if kind == "progress" else _rise
    seen = {(node, name) for node, name, _ in record.series}
    series = {**record.series, **{(node, name, ""): [] for node, name in record.zero if (node, name) not in seen}}
    topic = {"queue": "queue gauges", "progress": "progress", "aborts": "aborts counted"}[kind]
    for key, points in sorted(series.items()):
        node, name, _ = key
        if record.uses.of(node, name) != kind:
            continue
        # A counter that appears after the node's first scrape began at nothing; one that was there began where it was.
        before: tuple[int, float] | None = None
        if kind == "aborts" and points:
            appeared = points[0][0] > record.first_scrape.get(node, 0)
            before = (points[0][0], 0.0) if appeared else points[0]
        never = record.zero.get((node, name), [])
        cells = []
        for part in parts:
            mine = [point for point in points if point[0] in part]
            said = cell(mine, before)
            cells.append("never counted" if said == NOTHING and any(t_ns in part for t_ns in never) else said)
            before = mine[-1] if mine else before
        yield _row(topic, f"{node} {name} {labels.get(key, '')}".strip(), cells)


def _level(points: Points, _: tuple[int, float] | None) -> str:
    if not points:
        return NOTHING
    values = [value for _, value in points]
    return f"last {words.number(values[-1])}, most {words.number(max(values))}"


def _rate(points: Points, before: tuple[int, float] | None) -> str:
    run = [before, *points] if before else points
    if not points or len(run) < 2 or run[-1][0] <= run[0][0]:
        return NOTHING
    per_s = (run[-1][1] - run[0][1]) / ((run[-1][0] - run[0][0]) / 1e9)
    return "restarted (fell)" if per_s < 0 else f"{words.number(per_s)} /s"


def _rise(points: Points, before: tuple[int, float] | None) -> str:
    if not points:
        return NOTHING
    rise = points[-1][1] - (before[1] if before else 0.0)
    return "restarted (fell)" if rise < 0 else f"+{words.number(rise)}"


def _load(record: Record, parts: tuple[Period, ...]) -> Iterable[Row]:
    if record.load_ended:
        cells = []
        for part in parts:
            ends = Counter(ok for at_ns, ok in record.load_ended if at_ns in part)
            cells.append(f"{ends[True]} ok, {ends[False]} not" if ends else NOTHING)
        yield _row("progress", "load requests ended", cells)
    for who, beats in sorted(record.beats.items()):
        points = [(beat.t_ns, float(beat.tokens)) for beat in beats if beat.tokens]
        if points:
            yield _row("progress", f"tokens received by {who}", (_rate([p for p in points if p[0] in part], None)
                                                                for part in parts))  # fmt: skip


def _hits(record: Record, parts: tuple[Period, ...]) -> Iterable[Row]:
    covered = {event.node for event in record.covered} | {hit.node for hit in record.hits}
    kinds = sorted({(hit.klass != "fatal", hit.klass, hit.title, hit.node) for hit in record.hits})
    for _, klass, title, node in kinds[:60]:
        mine = [hit for hit in record.hits if (hit.klass, hit.title, hit.node) == (klass, title, node)]
        counts = (sum(hit.count for hit in mine if hit.t_ns in part) for part in parts)
        yield _row("log lines", f"{node} {klass}: {title}", (words.count(n, "line") if n else "none" for n in counts))
    if covered and not kinds:
        yield _row("log lines", f"{words.count(len(covered), 'log')} read", ("none" for _ in parts))


def _processes(record: Record, parts: tuple[Period, ...]) -> Iterable[Row]:
    for node in sorted({event.node for event in record.processes}):
        cells = []
        for part in parts:
            mine = [event for event in record.processes if event.node == node and event.t_ns in part]
            if not mine:
                cells.append(NOTHING)
                continue
            last = mine[-1]
            pids = {event.pid for event in mine}
            dead = [child for child in last.children if not child.alive]
            state = "alive" if last.alive else "DEAD"
            children = f", {len(last.children) - len(dead)} of {len(last.children)} children" if last.children else ""
            cells.append(f"{state}{children}{', replaced' if len(pids) > 1 else ''}")
        yield _row("processes", node, cells)


def _ourselves(record: Record, parts: tuple[Period, ...]) -> Iterable[Row]:
    for who, beats in sorted(record.beats.items()):
        lags = ([beat.lag_ms for beat in beats if beat.t_ns in part] for part in parts)
        cells = (f"{words.number(max(lag))} ms at most" if lag else NOTHING for lag in lags)
        yield _row("ourselves", f"lag of {who}", cells)
    if record.lost:
        cells = (words.count(sum(gap.from_ns in part for gap in record.lost), "gap") for part in parts)
        yield _row("ourselves", "evidence lost", cells)
