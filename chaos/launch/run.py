"""From what was asked for to a finished, judged and reported run: the one way in for every face."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import signal
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

from chaos import library
from chaos.engine.discretion import without_secrets
from chaos.engine.doctor.privileges import take_back, unmet_privileges
from chaos.engine.faults.permission import demand, reach
from chaos.engine.hosts import Hosts
from chaos.engine.hosts.lock import TargetLock
from chaos.engine.pyz import build_pyz
from chaos.engine.run import Run
from chaos.engine.safety import Interrupt
from chaos.engine.secrets import look_up_all
from chaos.engine.setup import RunSetup
from chaos.journal import RunFolder
from chaos.launch.aside import run_aside
from chaos.launch.consent import demand_consent
from chaos.launch.outputs import as_yaml, conclude
from chaos.launch.targets import open_target
from chaos.launch.telling import complain, note, tell
from chaos.model.errors import Refused, UserError
from chaos.model.events import PackUsed
from chaos.model.plan import resolve_plan, unmet_requirements
from chaos.render import LiveView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from chaos.launch.targets import OpenTarget
    from chaos.model.errors import PdchaosError
    from chaos.model.scenario import Scenario
    from chaos.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Launch:
    """What was asked for, in the words of the command line."""

    scenario: str
    target: str
    overrides: tuple[str, ...]
    lab_options: tuple[str, ...]
    reports: Path
    plain: bool = False
    production: bool = False
    confirm: str | None = None  # the target's name, typed
    steal_lock: str = ""  # why the deployment is taken from another run
    aside: bool = False  # its event loop gets a thread of its own: whoever asks may have one running already

    def command(self) -> str:
        """The shell line that repeats this run."""
        words = ["pdchaos", "run", self.scenario, "--target", self.target]
        for flag, values in (("--with", self.overrides), ("--set", self.lab_options)):
            for value in values:
                words += [flag, value]
        words += ["--production"] * self.production
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Launched:
    """A finished run."""

    verdict: Verdict
    folder: RunFolder
    failure: PdchaosError | None = None  # what ended it early


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which run, and when it began."""

    run_id: str
    began: datetime

    @classmethod
    def fresh(cls) -> Stamp:
        """A new one, now."""
        return cls(secrets.token_hex(4), datetime.now(UTC))

    @property
    def in_names(self) -> str:
        """As it stands in the name of a folder."""
        return f"{self.began:%Y%m%dT%H%M%SZ}"

    @property
    def utc(self) -> str:
        """ISO 8601."""
        return f"{self.began:%Y-%m-%dT%H:%M:%SZ}"


def launch(order: Launch) -> Launched:
    """Run, judge, report. Raises `UserError` for what was wrong before anything was broken.

    For the main thread, since signals are heard while it runs. A Ctrl-C before anything was broken raises
    KeyboardInterrupt; from then on the run hears it and comes to an end of its own.
    """
    scenario = library.load_scenario(order.scenario, order.overrides).value
    opened = open_target(order.target, order.lab_options)
    stamp = Stamp.fresh()
    folder = RunFolder.create(order.reports, utc=stamp.in_names, scenario=scenario.name, run_id=stamp.run_id)
    try:
        failure = execute(order, scenario, opened, folder, stamp, Interrupt(complain))
    except BaseException:
        if folder.journal.exists():
            complain(f"what was recorded can be judged: pdchaos judge {folder.root}")
        raise
    with undisturbed():
        return Launched(conclude(folder, order.command()), folder, failure)


def execute(
    order: Launch, scenario: Scenario, opened: OpenTarget, folder: RunFolder, stamp: Stamp, interrupt: Interrupt
) -> PdchaosError | None:
    """Make one run, from bringing up its target to taking it down; what ended it early is told, and returned.

    Raises PdchaosError when it could not begin; a mistake of the user's leaves no folder, and nothing an empty one.
    """
    try:
        with sigterm_is_ctrl_c(), closing(opened), ExitStack() as held:
            failure = _execute(order, scenario, opened, folder, stamp, interrupt, held)
    except (UserError, KeyboardInterrupt):
        folder.discard()  # which leaves one with a journal alone
        raise
    except BaseException:
        folder.discard_empty()  # a lab that did not start leaves the logs that say why
        raise
    if failure is not None:
        tell(failure)
    return failure


def _execute(
    order: Launch,
    scenario: Scenario,
    opened: OpenTarget,
    folder: RunFolder,
    stamp: Stamp,
    interrupt: Interrupt,
    held: ExitStack,
) -> PdchaosError | None:
    known = opened.outlined
    packs = {name: library.load_pack(name) for name in {known.engine, known.router_engine}}
    # What the files alone show comes before a lab is started for nothing, or somebody's host is asked.
    _refuse(unmet_requirements(scenario, known, {name: pack.value for name, pack in packs.items()}))
    demand_consent(known, production=order.production, confirmed=order.confirm)
    demand(scenario, known, opened.restarter)
    look_up_all(known, scenario, note)
    target = opened.standing or opened.start(folder.logs, note)
    hosts = held.enter_context(closing(Hosts.open(target, note, run=stamp.run_id)))
    lock: TargetLock | None = None
    gave_way: tuple[str, ...] = ()
    if opened.standing is not None:
        lock = TargetLock(target, hosts, stamp.run_id)
        gave_way = lock.take(order.steal_lock)
        held.callback(lock.release)
        for line in gave_way:
            note(f"pdchaos: {line}")
        target = opened.start(folder.logs, note, hosts)
        take_back(target, hosts, note)
    hosts.relay(target, run=stamp.run_id)
    reach(scenario, target, {name: pack.value for name, pack in packs.items()}, hosts)
    _refuse(unmet_privileges(scenario.requires.privileges, target, hosts))
    folder.write("scenario.yaml", as_yaml(scenario))
    folder.write("target.yaml", as_yaml(without_secrets(target)))
    for name, pack in packs.items():
        folder.write(f"packs/{name}.yaml", pack.text)
    console = Console(file=sys.stderr, force_terminal=False if order.plain else None)
    with LiveView(console) as view:
        run = Run(
            RunSetup(
                scenario=scenario,
                target=target,
                hosts=hosts,
                target_kind=opened.kind,
                packs={name: pack.value for name, pack in packs.items()},
                packs_used=tuple(
                    PackUsed(name=name, engine=pack.value.name, sha256=pack.sha256)
                    for name, pack in sorted(packs.items())
                ),
                plan=resolve_plan(scenario, target, packs[target.engine].value),
                run_id=stamp.run_id,
                utc=stamp.utc,
                folder=folder,
                pyz=build_pyz(folder.logs / "agent.pyz"),
                interrupt=interrupt,
                lock=lock,
                gave_way=gave_way,
                close_target=opened.close,
                restarter=opened.restarter,
                listeners=[view],
            )
        )
        failure = run_aside(run.execute(), interrupt) if order.aside else asyncio.run(run.execute())
    for dropped in run.dropped_listeners:
        complain(f"a view was dropped: {dropped}")
    return failure


def _refuse(unmet: Sequence[str]) -> None:
    if unmet:
        raise Refused("; ".join(unmet), hint="the scenario's `requires` names what it needs")


@contextmanager
def undisturbed(heard: Callable[[str], object] = lambda _: None) -> Iterator[None]:
    """A Ctrl-C too many must not cost the report: writing it takes a second. It is told to `heard`."""
    before = signal.signal(signal.SIGINT, lambda number, _: heard(signal.Signals(number).name))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """Before and after the event loop handles signals itself, SIGTERM unwinds like Ctrl-C, so a lab is taken down."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
