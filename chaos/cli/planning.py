"""`pdchaos plan`: what a run would do, with every duration resolved; nothing is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from chaos import library
from chaos.campaign import planned_runs
from chaos.cli.campaigns import where_asked
from chaos.engine.faults.permission import demand
from chaos.engine.faults.select import matching
from chaos.engine.fresh import demand_restart
from chaos.launch.targets import LAB_PREFIX, open_target
from chaos.model.errors import Refused
from chaos.model.estimate import longest_s, shortest_s
from chaos.model.faults import Kill, Poison, Sham
from chaos.model.plan import engine_timeouts, resolve_plan, unmet_requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chaos.campaign import Run
    from chaos.engine.ports import Restarter
    from chaos.model.events import Plan
    from chaos.model.pack import Pack
    from chaos.model.scenario import Group, Scenario, Step
    from chaos.model.target import Target


def show_plan(reference: str, target_text: str, *, overrides: Sequence[str], lab_options: Sequence[str]) -> None:
    """Print the resolved plan, and what would stop the run before it began."""
    scenario = library.load_scenario(reference, overrides).value
    opened = open_target(target_text, lab_options)
    target, restarter = opened.outlined, opened.restarter
    packs = {name: library.load_pack(name).value for name in {target.engine, target.router_engine}}
    plan = resolve_plan(scenario, target, packs[target.engine])
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    runs = planned_runs(library.load_variants(reference, overrides))
    rows = [
        *_rows(scenario, plan, target, packs),
        *_runs(runs, scenario, plan),
        *_obstacles(scenario, target, packs, restarter),
    ]
    if len(runs) > 1 and not target_text.startswith(LAB_PREFIX):
        rows += _fresh(target, where_asked(reference, overrides, scenario))
    for label, text in rows:
        table.add_row(label, text)
    Console(highlight=False, markup=False).print(table)


def _rows(scenario: Scenario, plan: Plan, target: Target, packs: Mapping[str, Pack]) -> Iterable[tuple[str, str]]:
    yield "scenario", f"{plan.scenario}: {plan.about}" if plan.about else plan.scenario
    yield "target", target.name + (f", its engine's clocks x {plan.time_scale:g}" if plan.time_scale != 1 else "")
    yield (
        "baseline",
        f"{plan.canaries_in_a_row} canaries in a row on every path, one every {plan.canary_interval_s:g} s",
    )
    for group in scenario.load:
        yield "load", _load(group)
    for step in scenario.timeline:
        yield "wave" if step.kill else "fault", _step(step, plan, target)
    yield "cycles", f"{plan.cycles}, with {plan.rest_s:g} s of rest between them"
    yield "watch", f"{plan.settle_s:g} s to settle, then until every path passes, {plan.watch_s:g} s at most"
    yield (
        "canaries",
        (
            f"deadline {plan.canary_deadline_s:g} s; recovered after {plan.canaries_in_a_row} in a row "
            f"begun {plan.quiet_s:g} s after the last abort"
        ),
    )
    yield "idle", f"{plan.idle_s:g} s without canaries, then one last canary per path"
    yield "expect", f"recovery within {plan.recover_within_s:g} s; allowed: {', '.join(plan.allow)}"
    for timeout in engine_timeouts(target, packs[target.engine]):
        yield "timeout", f"{timeout.name} {timeout.seconds:g} s ({timeout.source})"


def _runs(runs: Sequence[Run], scenario: Scenario, plan: Plan) -> Iterable[tuple[str, str]]:
    """How many runs, of which doses, and how long they take."""
    least_s, most_s = shortest_s(scenario, plan), longest_s(scenario, plan)
    if len(runs) == 1:
        yield "takes", f"{_span(least_s)} to {_span(most_s)}" + _and_the_load(scenario)
        return
    for dose in dict.fromkeys(run.planned.dose for run in runs if run.planned.dose):
        trials = sum((run.planned.dose, run.planned.arm) == (dose, "fault") for run in runs)
        yield "dose", f"{dose}: {trials} trial{'s' * (trials != 1)}"
    until = ", until the first that breaks" if scenario.trials.until else ""
    controls = sum(run.planned.arm == "control" for run in runs)
    of_control = f", {controls} of them of the control arm, without the fault" if controls else ""
    yield "runs", f"{len(runs)}, each on a freshly started deployment{of_control}{until}"
    each = f"{_span(least_s)} to {_span(most_s)} each"
    yield "takes", f"{_span(len(runs) * least_s)} to {_span(len(runs) * most_s)}: {each}{_and_the_load(scenario)}"


def _and_the_load(scenario: Scenario) -> str:
    return "" if scenario.timeline else ", and as long as the load takes"


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole / 60:.0f} min" if whole < 6000 else f"{whole / 3600:.1f} h"


def _fresh(target: Target, asked: str) -> Iterable[tuple[str, str]]:
    try:
        demand_restart(target, asked)
    except Refused as error:
        yield "REFUSED", f"{error.message} ({error.hint})"


def _load(group: Group) -> str:
    ramp = f"over {group.arrival.ramp:g} s" if group.arrival.ramp else "at once"
    pace = f"{group.arrival.rate:g}/s" if group.arrival.rate else ramp
    more = ""
    if group.saturate:
        more = f", more of them (up to {group.saturate.max_sessions}) until {group.saturate.waiting} wait"
    work = f"{group.rounds} rounds of {group.prompt_tokens} + {group.max_tokens} tokens, {group.api}"
    return f"{group.name}: {group.sessions} sessions {pace}{more}; {work}"


def _step(step: Step, plan: Plan, target: Target) -> str:
    if step.when:
        conditions = " and ".join(f"{name} {bound}" for name, bound in step.when.items())
        trigger = f"when {conditions} (gives up after {step.give_up:g} s)"
    elif step.after:
        trigger = f"after {step.after}"
    else:
        trigger = f"{step.at:g} s after load began"
    aim = ", ".join(f"{name} {bound}" for name, bound in step.aim.items())
    landed = f"; landed only if {aim}" if aim else ""
    fault = next(fault for fault in plan.faults if fault.id == step.id)
    lasts = "" if fault.lasts_s is None else f", undone after {fault.lasts_s:g} s"
    return f"{step.id}: {step.action.told}{_of(step, target)} {trigger}{lasts}{landed}"


def _of(step: Step, target: Target) -> str:
    """Of which nodes a step takes some; nothing where there is no choice."""
    if isinstance(step.action, Kill | Poison | Sham):
        return ""
    found = [server.id for server in matching(step.action.where, target.servers)]
    return f" (of {', '.join(found)})" if len(found) > step.action.where.number(len(found)) else ""


def _obstacles(
    scenario: Scenario, target: Target, packs: Mapping[str, Pack], restarter: Restarter
) -> Iterable[tuple[str, str]]:
    """What would stop the run before it began."""
    for unmet in unmet_requirements(scenario, target, packs):
        yield "REFUSED", unmet
    try:
        demand(scenario, target, restarter)
    except Refused as error:
        yield "REFUSED", f"{error.message} ({error.hint})"
