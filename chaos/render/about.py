"""The report's last sections: what was looked at, how to repeat it, and what made this page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.render import words
from chaos.render.markup import Html, h, table
from chaos.render.sections import section

if TYPE_CHECKING:
    from chaos.model.verdict import Verdict
    from chaos.render.markup import Child
    from chaos.render.record import Record


def deployment(record: Record) -> Html:
    """Nodes and versions, and the engine's own timeouts, after which stuck requests may free themselves."""
    seen = record.deployment
    if seen is None:
        return section("deployment", "Deployment", h("p", "The deployment never answered.", cls="quiet"))
    nodes = table(
        ["node", "role", "engine", "version", "ranks", "observed by"],
        [
            [h("th", node.id, scope="row"), node.role, node.engine or "unknown", node.version or "unknown",
             ", ".join(node.ranks) or "\u2013", ", ".join(node.observes) or "nothing"]
            for node in seen.nodes
        ],
    )  # fmt: skip
    timeouts: Child = h("p", "No timeout of the engine is known.", cls="quiet")
    if seen.timeouts:
        rows = [
            [h("th", t.name, scope="row"), h("td", words.span(t.seconds), cls="n"), t.source or "unknown"]
            for t in seen.timeouts
        ]
        timeouts = table(["engine timeout", "after", "known from"], rows)
    unseen = [path for path in seen.paths if not path.examined]
    dark = h("ul", *(h("li", f"{p.id}: {p.reason or 'no reason given'}") for p in unseen)) if unseen else ""
    lead = h("p", "Paths without a canary:", cls="quiet") if unseen else ""
    lag = h("p", f"Gauges may lag by {words.span(seen.gauge_lag_s)}.", cls="quiet")
    return section("deployment", "Deployment", nodes, timeouts, lag, lead, dark)


def repeat(lines: tuple[str, ...]) -> Html:
    """How to run this again."""
    body: Child = h("pre", "\n".join(lines)) if lines else h("p", "Nobody said how.", cls="quiet")
    return section("repeat", "Repeat this run", body)


def about(verdict: Verdict, record: Record, *, folder: str, files: tuple[str, ...]) -> Html:
    """Metadata: what made this report, from what, with which settings."""
    plan = record.plan
    missing = "none missing" if not record.missing else f"{record.missing} MISSING"
    facts: list[tuple[str, str]] = [("run", verdict.run_id), ("judge", verdict.judge_version)]
    if record.started:
        started = record.started
        facts += [("pdchaos", started.tool_version), ("began", started.utc), ("seed", str(started.seed))]
        facts += [("pack", f"{pack.name} (sha256 {pack.sha256[:12]})") for pack in started.packs]
        facts += [
            ("time scale", words.number(plan.time_scale)),
            ("recover within", words.span(plan.recover_within_s)),
            ("watch at most", words.span(plan.watch_s)),
            ("settle, quiet, idle", " / ".join(map(words.span, (plan.settle_s, plan.quiet_s, plan.idle_s)))),
            ("canary", f"every {words.span(plan.canary_interval_s)}, deadline {words.span(plan.canary_deadline_s)}"),
        ]
    facts += [
        ("allowed outcomes", ", ".join(verdict.allow) or "none named"),
        ("journal", f"{words.count(record.events, 'event')}, {missing}"),
    ]
    if folder:
        facts.append(("folder", folder))
    listing: Child = ""
    if files:
        listing = h("div", h("h3", "Beside this report"), h("ul", *(h("li", h("code", name)) for name in files)))
    rows = (h("div", h("dt", key), h("dd", value)) for key, value in facts)
    return section("about", "About this run", h("dl", *rows, cls="facts meta"), listing)
