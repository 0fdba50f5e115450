"""From a command line to a finished, judged and reported run: the one way in for `run` and `demo`."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from chaos import library
from chaos.agent.build import build_pyz
from chaos.cli.boundary import complain, interruptible, tell
from chaos.cli.outputs import conclude
from chaos.cli.targets import open_target
from chaos.engine.faults.permission import demand
from chaos.engine.run import Run, RunSetup
from chaos.engine.safety import Interrupt
from chaos.journal import RunFolder
from chaos.model.errors import UsageError
from chaos.model.plan import resolve_plan
from chaos.render import live_view

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.cli.targets import OpenTarget
    from chaos.model.scenario import Scenario
    from chaos.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Launch:
    """What the command line asked for."""

    scenario: str
    target: str
    overrides: tuple[str, ...]
    lab_options: tuple[str, ...]
    reports: Path
    plain: bool = False

    def command(self) -> str:
        """The shell line that repeats this run."""
        words = ["pdchaos", "run", self.scenario, "--target", self.target]
        for flag, values in (("--with", self.overrides), ("--set", self.lab_options)):
            for value in values:
                words += [flag, value]
        return " ".join(words)


def launch(order: Launch, *, show_panel: bool) -> Verdict:
    """Run, judge, report. Raises `UserError` for what was wrong before anything started."""
    scenario = library.load_scenario(order.scenario, order.overrides)
    if scenario.value.trials.count > 1:
        raise UsageError("trials.count: more than one trial is not supported yet", hint="run the command repeatedly")
    utc = datetime.now(UTC)
    run_id = secrets.token_hex(4)
    with ExitStack() as stack:
        stack.enter_context(interruptible())
        _sigterm_is_ctrl_c()
        target = open_target(order.target, order.lab_options)
        demand(scenario.value, target.spec)
        folder = RunFolder.create(
            order.reports, utc=utc.strftime("%Y%m%dT%H%M%SZ"), scenario=scenario.value.name, run_id=run_id
        )
        stack.callback(target.close)
        target.start(folder.logs, run_id=run_id)
        _execute(order, scenario, target, folder, run_id=run_id, utc=utc)
    return conclude(folder, order.command(), show_panel=show_panel)
