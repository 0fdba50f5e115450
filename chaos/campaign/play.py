"""Makes the runs of a campaign one after the other, and records what their own journals cannot tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge import is_the_last
from chaos.model.campaign import Ended, Failed
from chaos.model.errors import PdchaosError, UserError
from chaos.model.outcomes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chaos.campaign.planned import Run
    from chaos.journal import CampaignFolder
    from chaos.model.campaign import Begun
    from chaos.model.verdict import Verdict

MOST_FAILED_IN_A_ROW = 3
"""A starved machine may fail to start a deployment once or twice; three times is no accident."""


def play(
    begun: Begun,
    runs: Sequence[Run],
    folder: CampaignFolder,
    make: Callable[[Run], Verdict],
    stopping: Callable[[], str],
) -> None:
    """Make run after run until all are made, the first that broke was to be the last, or somebody stops it.

    `make` makes one and judges it; it raises PdchaosError when the run could not begin. A mistake of the user's in the
    very first run is raised: it would be the same in all others. `stopping` says why to make no further run, if so.
    """
    folder.note(begun)
    failed_in_a_row = 0
    reason = ""
    for run in runs:
        try:
            verdict = make(run)
        except KeyboardInterrupt:
            folder.run(run.planned).discard()
            reason = "interrupted before its deployment was up"
            break
        except PdchaosError as error:
            if isinstance(error, UserError) and run is runs[0]:
                raise
            folder.note(Failed(number=run.planned.number, exit_code=ExitCode(error.exit_code), error=error.message))
            failed_in_a_row += 1
        else:
            failed_in_a_row = 0
            if is_the_last(begun, run.planned, verdict):
                break
        if run is not runs[-1] and (reason := stopping()):
            break
        if failed_in_a_row == MOST_FAILED_IN_A_ROW:
            folder.note(Ended(reason=f"{failed_in_a_row} runs in a row could not begin", interrupted=False))
            return
    folder.note(Ended(reason=reason, interrupted=bool(reason)))
