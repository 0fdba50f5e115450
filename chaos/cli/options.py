"""What several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def examples(*commands: str) -> str:
    """Below a command's help; a test types them."""
    return "\n\n".join(("Examples:", *(f"`{command}`" for command in commands)))


def _reason(value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise typer.BadParameter("say why")
    return value


ScenarioArg = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario's name or its YAML file.")]
TargetOpt = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="A target file (pdchaos init writes one), or a lab that is started for this run alone: lab:sim, "
        "lab:sim@BUILD, lab:sglang@VERSION (pdchaos lab list).",
    ),
]
WithOpt = Annotated[
    list[str],
    typer.Option(
        "--with",
        metavar="KEY=VALUE",
        help="Override a value of the scenario, durations with their unit: expect.recover_within=10s, trials.count=20. "
        "Repeatable.",
    ),
]
SetOpt = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="OPTION=VALUE",
        help="An option of the lab, e.g. prefill=2 (pdchaos lab list --verbose). Repeatable.",
    ),
]
ReportsOpt = Annotated[Path, typer.Option("--reports", metavar="DIR", help="Where the run's folder is made.")]
StealOpt = Annotated[
    str | None,
    typer.Option(
        "--steal-lock",
        metavar="REASON",
        callback=_reason,
        help="Take the target from another run that still lives; the reason is shown there and recorded.",
    ),
]
DEFAULT_TARGET = "lab:sim"
