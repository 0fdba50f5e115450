"""What several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _reason(value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise typer.BadParameter("say why")
    return value


ScenarioArg = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario's name or its YAML file.")]
TargetOpt = Annotated[
    str,
    typer.Option(
        "--target", "-t", metavar="TARGET", help="A target file or a lab: lab:sim@BUILD, lab:sglang@VERSION, ..."
    ),
]
WithOpt = Annotated[
    list[str],
    typer.Option(
        "--with", metavar="KEY=VALUE", help="Override a scenario value, e.g. expect.recover_within=10s. Repeatable."
    ),
]
SetOpt = Annotated[
    list[str], typer.Option("--set", metavar="OPTION=VALUE", help="A lab option, e.g. prefill=2. Repeatable.")
]
ReportsOpt = Annotated[Path, typer.Option("--reports", metavar="DIR", help="Where run folders are made.")]
StealOpt = Annotated[
    str | None,
    typer.Option(
        "--steal-lock",
        metavar="REASON",
        callback=_reason,
        help="Take the target from another run that lives, and why.",
    ),
]
DEFAULT_TARGET = "lab:sim"
