"""`pdchaos demo`: the same attack on a release with the bug and on one without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from chaos.cli.boundary import interruptible
from chaos.launch.run import Launch, launch
from chaos.model.outcomes import ExitCode, Outcome
from chaos.render import panels_side_by_side

if TYPE_CHECKING:
    from pathlib import Path

ACTS = (
    ("lab:sim@nixl-abort-unhandled", Outcome.WEDGED, "Act 1: a release whose prefill does not know the abort message"),
    ("lab:sim@healthy", Outcome.HEALTHY, "Act 2: the same attack on a release that does"),
)


def run_demo(reports: Path) -> int:
    """Run both acts; 0 exactly when the first wedged and the second stayed healthy."""
    console = Console(highlight=False)
    verdicts, folders = [], []
    for target, _, title in ACTS:
        console.rule(title)
        order = Launch(scenario="abort-cascade", target=target, overrides=(), lab_options=(), reports=reports)
        with interruptible():
            launched = launch(order)
        verdicts.append((target, launched.verdict))
        folders.append(launched.folder)
    console.print(panels_side_by_side(verdicts))
    for (target, verdict), folder in zip(verdicts, folders, strict=True):
        console.print(f"{verdict.outcome.value.upper():<8} {target}", markup=False)
        console.print(f"         open {folder.report}", soft_wrap=True, markup=False)
    as_told = all(verdict.outcome is wanted for (_, wanted, _), (_, verdict) in zip(ACTS, verdicts, strict=True))
    if as_told:
        console.print("As it should be: the first deployment is wedged, the second survived the same attack.")
        return int(ExitCode.AS_EXPECTED)
    console.print("Not as it should be: see the panels; the run folders have the evidence.")
    return int(ExitCode.VIOLATION)
