"""`check`, `plan`, `schema`, `scenarios`, `init`: everything about files that touches no deployment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from chaos import library
from chaos.cli.boundary import complain, tell
from chaos.cli.targets import outline
from chaos.engine.faults.permission import demand
from chaos.model.errors import PdchaosError, UsageError, UserError
from chaos.model.loading import parse_pack, parse_scenario, parse_target
from chaos.model.outcomes import ExitCode
from chaos.model.plan import engine_timeouts, resolve_plan, unmet_requirements
from chaos.model.schema import KINDS, json_schema
from chaos.model.yamlpos import parse_yaml, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from chaos.model.events import Plan
    from chaos.model.scenario import Scenario
    from chaos.model.schema import Kind
    from chaos.model.target import Target

TARGET_KEYS = {"router", "prefill", "decode"}
PACK_KEYS = {"signatures", "metrics", "endpoints", "gauge_lag"}


def check_files(files: Sequence[Path]) -> int:
    """Check every file; 0 when all are fine, 2 when any is not."""
    failed = 0
    for path in files:
        try:
            kind = _check(path)
        except UserError as error:
            failed += 1
            tell(error)
        else:
            print(f"{path}: a valid {kind}")  # noqa: T201
    if failed and len(files) > 1:
        complain(f"{failed} of {len(files)} files are wrong")
    return int(ExitCode.USAGE if failed else ExitCode.AS_EXPECTED)


def _check(path: Path) -> Kind:
    text = library.read(path)
    kind = _kind(plain(parse_yaml(text, str(path))))
    match kind:
        case "target":
            parse_target(text, str(path), known=library.known())
        case "pack":
            parse_pack(text, str(path))
        case "scenario":
            parse_scenario(text, str(path), known=library.known())
    return kind


def _kind(tree: object) -> Kind:
    """What a file means to be, by the keys that only one kind has."""
    keys = set(tree) if isinstance(tree, dict) else set()
    if keys & TARGET_KEYS:
        return "target"
    return "pack" if keys & PACK_KEYS else "scenario"


def show_schema(kind: str) -> None:
    """Print one JSON Schema."""
    known: Mapping[str, Kind] = {name: name for name in KINDS}
    if kind not in known:
        raise UsageError(f"there is no schema for {kind!r}", hint=f"one of: {', '.join(known)}")
    print(json.dumps(json_schema(known[kind]), indent=2))  # noqa: T201


def list_scenarios() -> None:
    """Print the library's scenarios."""
    table = Table("scenario", "about", box=None, pad_edge=False)
    for name in library.names("scenarios"):
        table.add_row(name, library.load_scenario(name).value.about)
    Console().print(table)


def show_plan(reference: str, target_text: str, *, overrides: Sequence[str], lab_options: Sequence[str]) -> None:
    """Print the resolved plan, and what would stop the run before it began."""
    scenario = library.load_scenario(reference, overrides).value
    target = outline(target_text, lab_options)
    packs = {name: library.load_pack(name).value for name in {target.engine, target.router_engine}}
    plan = resolve_plan(scenario, target, packs[target.engine])
    console = Console(soft_wrap=True, highlight=False)
    for line in _lines(
        scenario, plan, target, [(t.name, t.seconds, t.source) for t in engine_timeouts(target, packs[target.engine])]
    ):
        console.print(line, markup=False)
    obstacles = unmet_requirements(scenario, target, packs)
    try:
        demand(scenario, target)
    except PdchaosError as error:
        obstacles.append(error.message)
    for obstacle in obstacles:
        console.print(f"this run would be refused: {obstacle}", markup=False)


def _lines(scenario: Scenario, plan: Plan, target: Target, timeouts: Sequence[tuple[str, float, str]]) -> Sequence[str]:
    scaled = f", engine clocks x {plan.time_scale:g}" if plan.time_scale != 1 else ""
    lines = [f"{plan.scenario} on {target.name}{scaled}"]
    if plan.about:
        lines.append(f"  {plan.about}")
    lines.append(
        f"baseline    {plan.canaries_in_a_row} canaries in a row on every path, one each {plan.canary_interval_s:g} s"
    )
    for group in scenario.load:
        more = f", up to {group.saturate.max_sessions} until {group.saturate.waiting} wait" if group.saturate else ""
        pace = f"{group.arrival.rate:g}/s" if group.arrival.rate else f"over {group.arrival.ramp:g} s"
        lines.append(
            f"load        {group.name}: {group.sessions} sessions {pace}{more}; {group.rounds} rounds of "
            f"{group.prompt_tokens} + {group.max_tokens} tokens, {group.api}"
        )
    for step in scenario.timeline:
        when = " and ".join(f"{name} {bound}" for name, bound in (step.when or {}).items())
        trigger = (
            f"when {when} (gives up after {step.give_up:g} s)"
            if step.when
            else f"after {step.after}"
            if step.after
            else f"{step.at:g} s after load began"
        )
        aim = ", ".join(f"{name} {bound}" for name, bound in step.aim.items()) or "none"
        lines.append(
            f"wave        {step.id}: {step.kill.how} {step.kill.sessions} of {step.kill.group} {trigger}; landed only if: {aim}"
        )
    lines += [
        f"cycles      {plan.cycles}, {plan.rest_s:g} s rest between them",
        f"watch       {plan.settle_s:g} s to settle, then until all paths pass, {plan.watch_s:g} s at most",
        f"canaries    deadline {plan.canary_deadline_s:g} s; {plan.canaries_in_a_row} in a row begun {plan.quiet_s:g} s after the last abort",
        f"idle        {plan.idle_s:g} s without canaries, then one last canary per path",
        f"expect      recovery within {plan.recover_within_s:g} s; allowed: {', '.join(plan.allow)}",
    ]
    lines += [f"timeout     {name} {seconds:g} s ({source})" for name, seconds, source in timeouts]
    return lines


def init_files(folder: Path) -> None:
    """Write a target file and a scenario to start from."""
    files = {
        "target.yaml": (library.folder("templates") / "target.yaml").read_bytes(),
        "abort-cascade.yaml": library.load_scenario("abort-cascade").text,
    }
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise UsageError(
            f"{folder / there[0]} exists already; nothing was written", hint="choose another folder: pdchaos init DIR"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_bytes(text)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    for name in files:
        print(f"wrote {folder / name}")  # noqa: T201
    target, scenario = folder / "target.yaml", folder / "abort-cascade.yaml"
    print(f"edit {target}, then: pdchaos check {target} && pdchaos run {scenario} --target {target}")  # noqa: T201
