"""Makes the run that a test asks for, and turns what it came to into what pytest tells."""

from __future__ import annotations

import io
import threading
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from rich.console import Console

from chaos import library
from chaos.campaign import planned_runs
from chaos.engine.secrets import concealed
from chaos.launch.run import launch
from chaos.launch.targets import open_target
from chaos.model.errors import PdchaosError, Refused, UsageError, UserError
from chaos.model.outcomes import ExitCode, RunStatus
from chaos.pytest_plugin.asked import order
from chaos.render import verdict_panel
from chaos.render.words import EXIT_MEANINGS, headline, outcome_look, wedge_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chaos.launch.run import Launch, Launched

WIDEST = 110


def run_for(
    item: pytest.Item,
    marker: str,
    args: Sequence[Any],
    given: Mapping[str, Any],
    *,
    note: Callable[[tuple[str, object]], None],
) -> Launched:
    """Make the run; fail the test unless the verdict is as expected. `note` takes properties of the test's report."""
    try:
        wanted = order(item, marker, args, given)
        _demand_fit_for_a_test(wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # what a suite makes of warnings must not end a run half way
            launched = launch(wanted)
    except PdchaosError as error:
        _fail(_told(error))
    note(("pdchaos_outcome", launched.verdict.outcome.value))
    note(("pdchaos_run", str(launched.folder.root)))
    if launched.verdict.status is RunStatus.ABORTED:  # by a signal: whoever sent it meant all of this
        item.session.shouldstop = "pdchaos was told to stop its run"
    if launched.verdict.exit_code is not ExitCode.AS_EXPECTED:
        _fail(failure_text(launched, wanted, item.config.get_terminal_writer().fullwidth))
    return launched


def _demand_fit_for_a_test(wanted: Launch) -> None:
    """What a person at a terminal may want, and a test suite must not."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("a run hears Ctrl-C and a test's timeout, so it is made on the main thread only")
    runs = planned_runs(library.load_variants(wanted.scenario, wanted.overrides))
    if len(runs) > 1 or runs[0].planned.dose:
        raise UsageError(
            f"{wanted.scenario} asks for several runs, and a test is one",
            hint="`pdchaos run` makes several; in a suite use pytest.mark.parametrize",
        )
    target = open_target(wanted.target, wanted.lab_options).outlined
    if target.environment == "production":
        raise Refused(
            f"{target.name} is a production deployment, which no test suite breaks",
            hint="`pdchaos run` does, for whoever says so twice",
        )


def _fail(text: str) -> NoReturn:
    raise pytest.fail.Exception(concealed(text), pytrace=False) from None


def _told(error: PdchaosError) -> str:
    """An error that left no run behind."""
    kind = EXIT_MEANINGS[error.exit_code] if isinstance(error, UserError) else "harness error"
    return f"pdchaos, {kind}: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")


def failure_text(launched: Launched, wanted: Launch, width: int) -> str:
    """What became of the target in one line; the panel; where the record is and what judges it again."""
    verdict, folder = launched.verdict, launched.folder
    page = io.StringIO()
    Console(file=page, width=min(width, WIDEST), force_terminal=False).print(verdict_panel(verdict))
    lines = [_in_one_line(launched), "", page.getvalue().rstrip(), f"run folder:  {folder.root}"]
    if folder.report.exists():
        lines.append(f"report:      {folder.report}")
    return "\n".join([*lines, f"judge again: pdchaos judge {folder.root}", f"run again:   {wanted.command()}"])


def _in_one_line(launched: Launched) -> str:
    verdict, failure = launched.verdict, launched.failure
    code = ExitCode(verdict.exit_code)
    word = outcome_look(verdict.outcome).word
    if code in (ExitCode.VIOLATION, ExitCode.VIOLATION_AND_CLEANUP):
        manner = ", ".join(wedge_words(verdict))
        expected = "" if verdict.outcome.violation else f", where only {' or '.join(verdict.allow)} is expected"
        more = ", and cleanup is incomplete" if code is ExitCode.VIOLATION_AND_CLEANUP else ""
        return f"{word}{f' ({manner})' if manner else ''}{expected}{more}: {headline(verdict)}"
    if code is ExitCode.INCONCLUSIVE:
        return f"{word}, which shows neither that it survives nor that it does not: {headline(verdict)}"
    if failure is not None:
        return f"{EXIT_MEANINGS[code]}: {failure.message}" + (f"\nhint: {failure.hint}" if failure.hint else "")
    return f"{EXIT_MEANINGS[code]}: {headline(verdict)}"
