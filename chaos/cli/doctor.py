"""`pdchaos doctor`: every precondition of a run against a target, and what mends each that does not hold."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
from contextlib import closing
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos import library
from chaos.cli.boundary import interruptible
from chaos.cli.outputs import listened_to
from chaos.engine.doctor import BAD, State, examine, verdict
from chaos.engine.hosts import Hosts
from chaos.engine.secrets import concealed, look_up_target
from chaos.launch.run import sigterm_is_ctrl_c
from chaos.launch.targets import open_target
from chaos.launch.telling import note
from chaos.model.errors import UsageError, UserError

if TYPE_CHECKING:
    from chaos.engine.doctor import Row
    from chaos.model.target import Target

STYLES = {
    State.OK: "green",
    State.NOTE: "yellow",
    State.REFUSED: "red",
    State.PROBLEM: "bold red",
    State.MISTAKE: "bold red",
}


def doctor(reference: str, *, production: bool, as_json: bool) -> int:
    """Examine a target file; 0 when all is well, 2 for a mistake in it, 6 when unfit, 5 when it would be refused."""
    target = open_target(reference, ()).standing
    if target is None:
        raise UsageError("a lab of a run's own is made fit by pdchaos itself", hint="--target takes a target file")
    look_up_target(target, note)
    with interruptible(), sigterm_is_ctrl_c():
        rows = _examined(target, reference, ask=production or target.environment != "production")
    with listened_to():
        _show(rows, target.name, as_json=as_json)
    return int(verdict(rows))


def _examined(target: Target, reference: str, *, ask: bool) -> list[Row]:
    packs = {name: library.load_pack(name).value for name in {target.engine, target.router_engine}}
    run = f"doctor-{secrets.token_hex(3)}"  # of its own: two that look at once do not take each other for themselves
    hosts, failures = Hosts.reach(target, note)
    with closing(hosts):
        if not failures:
            try:
                hosts.relay(target, run=run)
            except UserError as error:
                failures = dict.fromkeys((server.id for server in target.servers), error)
        return asyncio.run(examine(target, packs, hosts, failures, note, again=reference, run=run, ask=ask))


def _show(rows: list[Row], name: str, *, as_json: bool) -> None:
    if as_json:
        told = {"target": name, "exit_code": int(verdict(rows)), "rows": [dataclasses.asdict(row) for row in rows]}
        print(concealed(json.dumps(told, indent=2)))  # noqa: T201
        return
    console = Console(highlight=False, markup=False)
    table = Table("", "what", "found", box=None, pad_edge=False)
    table.columns[2].overflow = "fold"
    before = ""
    for row in rows:
        if row.where != before:
            before = row.where
            table.add_row("", row.where, style="bold")
        mended = f"\nto mend it: {row.fix}" if row.fix and row.state is not State.OK else ""
        table.add_row(Text(row.state.value, STYLES[row.state]), f"  {row.what}", concealed(row.said) + mended)
    console.print(table)
    bad = sum(row.state in BAD for row in rows)
    console.print(f"{name}: " + ("all is well" if not bad else f"{bad} of {len(rows)} to mend"))
