"""Saved runs of an earlier measurement judged anew: the judge is a pure function, so its mends need no new runs.

What a mend of the engine, of a build or of the ground truth changes does need them: such entries have another key, or
their lines are to be taken out of the results by hand.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from chaos.journal import read_journal
from chaos.judge import JUDGE_VERSION, judge
from chaos.model.errors import PdchaosError
from chaos.model.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from bench.accuracy_table import Result


def judged_anew(results: Iterable[Result], source: Path, out: Path) -> Iterator[Result]:
    """The results of the measurement in `source` for the one in `out`, with what the present judge says.

    A run whose folder was not kept, or is no longer whole, keeps its old verdict, and what judged it.
    """
    for result in results:
        folder = source / result.folder if result.folder else None
        moved = msgspec.structs.replace(result, folder=os.path.relpath(folder, out)) if folder else result
        yield _anew(moved, folder) if folder else moved


def _anew(result: Result, folder: Path) -> Result:
    journals = sorted(folder.glob("*/journal.jsonl"))
    saved = sorted(folder.glob("*/verdict.json"))
    if len(journals) != 1 or len(saved) != 1:
        return result  # no verdict came of the run itself; one that is made now would hide that
    try:
        verdict = judge(read_journal(journals[0]).events)
        first = msgspec.json.decode(saved[0].read_bytes(), type=Verdict)
    except (PdchaosError, msgspec.DecodeError, OSError):
        return result
    return msgspec.structs.replace(
        result,
        outcome=verdict.outcome,
        side=verdict.wedge.side if verdict.wedge else "",
        headline=verdict.headline,
        exit_code=int(verdict.exit_code),
        judge=JUDGE_VERSION,
        first_judge=result.first_judge or first.judge_version,
    )
