"""`pdchaos run` of a scenario that asks for several runs: each on a fresh deployment, one verdict over all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chaos import __version__, library
from chaos.campaign import judged_campaign, planned_runs, play
from chaos.cli.boundary import interruptible
from chaos.cli.consent import ask_consent
from chaos.cli.outputs import listened_to, show, show_campaign, write_campaign
from chaos.engine.fresh import demand_restart
from chaos.engine.safety import Interrupt
from chaos.journal import CampaignFolder, RunFolder
from chaos.launch.outputs import as_yaml, conclude
from chaos.launch.run import Stamp, execute, launch, sigterm_is_ctrl_c, undisturbed
from chaos.launch.targets import FileTarget, open_target
from chaos.launch.telling import complain, note, tell
from chaos.model.campaign import FORMAT, Begun
from chaos.model.errors import PdchaosError, UserError
from chaos.render import named, run_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.campaign import Run
    from chaos.launch.run import Launch
    from chaos.model.scenario import Scenario
    from chaos.model.verdict import Verdict


def run(order: Launch) -> int:
    """One run, or a campaign, as the scenario asks; returns the exit code."""
    runs = planned_runs(library.load_variants(order.scenario, order.overrides))
    standing = open_target(order.target, order.lab_options).standing
    if standing is not None and order.production:
        with interruptible():
            order = replace(order, confirm=ask_consent(standing, order.confirm))
    if len(runs) == 1 and not runs[0].planned.dose:
        with interruptible():
            launched = launch(order)
        with undisturbed():
            show(launched.verdict, launched.folder)
        return int(launched.verdict.exit_code)
    return _campaign(order, runs)


def where_asked(reference: str, overrides: Sequence[str], scenario: Scenario) -> str:
    """Where a scenario asks for several runs."""
    keys = ("trials", "count") if scenario.trials.count > 1 else ("sweep",)
    return library.where(reference, overrides, *keys)


@dataclass(slots=True)
class _Stop:
    """The first Ctrl-C ends the campaign after the present run; the next ones are the run's."""

    reason: str = ""

    def hear(self, reason: str) -> bool:
        """One more wish to stop: whether it was for the campaign alone."""
        if self.reason:
            return False
        self.reason = reason
        complain(f"{reason}: this run goes on to its end and no other is made. Once more ends this run, too.")
        return True


def _campaign(order: Launch, runs: tuple[Run, ...]) -> int:
    scenario = library.load_scenario(order.scenario, order.overrides).value
    opened = open_target(order.target, order.lab_options)
    if isinstance(opened, FileTarget):
        demand_restart(opened.spec, where_asked(order.scenario, order.overrides, scenario))
    stamp, stop = Stamp.fresh(), _Stop()
    folder = CampaignFolder.create(order.reports, utc=stamp.in_names, scenario=scenario.name, campaign_id=stamp.run_id)
    begun = Begun(
        format=FORMAT,
        campaign_id=stamp.run_id,
        tool_version=__version__,
        utc=stamp.utc,
        scenario=scenario.name,
        about=scenario.about,
        target=opened.kind,
        allow=tuple(outcome.value for outcome in scenario.expect.allow),
        until=scenario.trials.until or "",
        runs=tuple(run.planned for run in runs),
        slower_by=scenario.control.factor if scenario.control else 0.0,
    )

    def make(run: Run) -> Verdict:
        note(f"pdchaos: run {run.planned.number} of {len(runs)} begins {named(run.planned)}".rstrip())
        try:
            verdict = _one(order, run, folder, stop)
        except PdchaosError as error:
            if run is not runs[0] or not isinstance(error, UserError):  # which is raised, and told where it ends up
                tell(error)
            raise
        with listened_to():
            print(run_line(run.planned, len(runs), verdict), flush=True)  # noqa: T201
        return verdict

    try:
        folder.write("scenario.yaml", as_yaml(scenario))
        with sigterm_is_ctrl_c():
            play(begun, runs, folder, make, lambda: stop.reason)
    except UserError:
        folder.discard()
        raise
    with undisturbed():
        campaign = judged_campaign(folder)
        write_campaign(folder, campaign, order.command())
        show_campaign(campaign, folder)
    return int(campaign.exit_code)


def _one(order: Launch, run: Run, campaign: CampaignFolder, stop: _Stop) -> Verdict:
    folder = RunFolder.make(campaign.run(run.planned).root)
    opened = open_target(order.target, order.lab_options, anew=True)
    execute(order, run.scenario, opened, folder, Stamp.fresh(), Interrupt(complain, stop.hear))
    alone = replace(order, scenario=str(folder.root / "scenario.yaml"), overrides=())
    with undisturbed(stop.hear):
        return conclude(folder, alone.command())
