"""Names and options of every command but those of labs; each body hands over to the module of that command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chaos import __version__
from chaos.cli.lab_app import lab_app
from chaos.cli.options import DEFAULT_TARGET, ReportsOpt, ScenarioArg, SetOpt, StealOpt, TargetOpt, WithOpt, examples

app = typer.Typer(
    name="pdchaos",
    help="Break a prefill/decode LLM deployment on purpose and prove whether it wedged.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",  # paragraphs of docstrings are filled, not kept line by line
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="First: pdchaos demo. Then: pdchaos init, and the commands that it names.\n\n"
    "Exit codes: 0 as expected, 1 violation, 2 usage or invalid file, 3 inconclusive, 4 harness error, "
    "5 refused, 6 target unfit, 8 cleanup incomplete, 9 violation and cleanup incomplete, 130 interrupted.",
)
app.add_typer(lab_app, name="lab")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"pdchaos {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, metavar="", help="Print the version and stop."),
    ] = False,
) -> None:
    """Break a prefill/decode LLM deployment on purpose and prove whether it wedged."""


@app.command(
    epilog=examples(
        "pdchaos run abort-cascade -t lab:sim@nixl-abort-unhandled",
        "pdchaos run abort-cascade.yaml -t target.yaml --with expect.recover_within=30s",
    )
)
def run(
    scenario: ScenarioArg,
    target: TargetOpt = DEFAULT_TARGET,
    with_: WithOpt = [],  # noqa: B006 - the library copies it
    set_: SetOpt = [],  # noqa: B006
    reports: ReportsOpt = Path("reports"),
    plain: Annotated[
        bool, typer.Option("--plain", metavar="", help="Lines one after the other, also on a terminal.")
    ] = False,
    production: Annotated[
        bool,
        typer.Option(
            "--production", metavar="", help="Break a target of `environment: production`; asks for its name."
        ),
    ] = False,
    confirm: Annotated[
        str | None,
        typer.Option("--confirm", metavar="NAME", help="With --production: that name, where nobody can be asked."),
    ] = None,
    steal_lock: StealOpt = None,
) -> None:
    """Run one scenario against one target and judge what happened.

    The first Ctrl-C lets open requests finish and judges; the second leaves at once. Everything is recorded in a run
    folder that `pdchaos judge` can judge again. A scenario with `trials` or a `sweep` makes several runs, each on a
    fresh deployment; there the first Ctrl-C lets the present run go to its end.
    """
    from chaos.cli.campaigns import run as run_scenario  # noqa: PLC0415
    from chaos.launch.run import Launch  # noqa: PLC0415

    order = Launch(
        scenario=scenario,
        target=target,
        overrides=tuple(with_),
        lab_options=tuple(set_),
        reports=reports,
        plain=plain,
        production=production,
        confirm=confirm,
        steal_lock=steal_lock or "",
    )
    raise typer.Exit(run_scenario(order))


@app.command(epilog=examples("pdchaos judge reports/RUN_DIR", "pdchaos judge reports/RUN_DIR --json"))
def judge(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="A run folder, its journal.jsonl, or a campaign's folder.")
    ],
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print verdict.json instead of the panel.")] = False,
    write: Annotated[
        bool, typer.Option("--write", metavar="", help="Write the folder's verdict and reports anew.")
    ] = False,
) -> None:
    """Judge a recorded run or campaign again, with the rules of this version."""
    from chaos.cli.judging import judge_again  # noqa: PLC0415

    raise typer.Exit(judge_again(run_dir, as_json=json, write=write))


@app.command(epilog=examples("pdchaos autopsy --init incident", "pdchaos autopsy incident"))
def autopsy(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with an observations.yaml.")],
    init: Annotated[
        bool,
        typer.Option(
            "--init", metavar="", help="Write a commented observations.yaml into DIR to start from, and stop."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="This very folder, made anew, instead of one in --reports."),
    ] = None,
    reports: ReportsOpt = Path("reports"),
) -> None:
    """Judge an incident from evidence that people have collected: logs, metrics, and what they noted.

    DIR holds an observations.yaml that names the logs and scrapes beside it and states what was seen: fresh requests
    and what became of them, processes, health checks, what was done. The same judge judges it as a run of ours;
    questions that only a run can answer do not arise. Prose is never read for meaning. Exit codes are those of a run.

    Of each log it says how many of its lines, empty ones left out, were used as evidence, have no meaning for it, could
    not be read, and are from before or after the time watched.
    """
    from chaos.cli.autopsy import autopsy as judge_folder  # noqa: PLC0415
    from chaos.cli.autopsy import begin_autopsy  # noqa: PLC0415

    if init:
        begin_autopsy(folder)
        return
    raise typer.Exit(judge_folder(folder, reports, out))


@app.command(epilog=examples("pdchaos plan abort-cascade -t lab:sim --set prefill=2"))
def plan(
    scenario: ScenarioArg,
    target: TargetOpt = DEFAULT_TARGET,
    with_: WithOpt = [],  # noqa: B006
    set_: SetOpt = [],  # noqa: B006
) -> None:
    """Print what a run would do, with every duration resolved; touches nothing."""
    from chaos.cli.planning import show_plan  # noqa: PLC0415

    show_plan(scenario, target, overrides=with_, lab_options=set_)


@app.command(epilog=examples("pdchaos check target.yaml abort-cascade.yaml"))
def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Scenario, target, pack, observations files. A scenario beside a target is held against it, too.",
        ),
    ],
) -> None:
    """Check files and report every problem at once as file:line:col."""
    from chaos.cli.files import check_files  # noqa: PLC0415

    raise typer.Exit(check_files(files))


@app.command(epilog=examples("pdchaos schema target > target.schema.json"))
def schema(
    kind: Annotated[str, typer.Argument(metavar="scenario|target|pack|observations", help="Of which kind of file.")],
) -> None:
    """Print the JSON Schema of a kind of file, for editors."""
    from chaos.cli.files import show_schema  # noqa: PLC0415

    show_schema(kind)


@app.command()
def scenarios() -> None:
    """List the scenarios that come with pdchaos."""
    from chaos.cli.files import list_scenarios  # noqa: PLC0415

    list_scenarios()


@app.command(epilog=examples("pdchaos init", "pdchaos init --ssh ops@gpu1 ops@gpu2 ops@gpu3 --dir cluster"))
def init(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR | USER@HOST...]", help="Where to put the files (default: here); with --ssh the hosts."
        ),
    ] = None,
    ssh: Annotated[
        bool,
        typer.Option(
            "--ssh",
            metavar="",
            help="For servers on hosts over SSH, named in this order: the router's, a prefill's, those of decode.",
        ),
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where to put the files (default: here).")
    ] = None,
    identity: Annotated[
        str,
        typer.Option(
            "--identity", metavar="FILE", help="With --ssh: the private key to log in with (default: as ssh)."
        ),
    ] = "",
    known_hosts: Annotated[
        str, typer.Option("--known-hosts", metavar="FILE", help="With --ssh: the file of host keys (default: as ssh).")
    ] = "",
) -> None:
    """Write a commented target file and a scenario to start from, and tell what to do next; overwrites nothing."""
    from chaos.cli.starting import OverSsh, init_files, key_file, parse_logins  # noqa: PLC0415

    words = words or []
    if ssh:
        folder = folder or Path()
        identity = key_file(identity, "--identity", folder)
        known_hosts = key_file(known_hosts, "--known-hosts", folder)
        init_files(folder, OverSsh(parse_logins(words), identity, known_hosts))
        return
    if len(words) + (folder is not None) > 1 or any("@" in word for word in words) or identity or known_hosts:
        raise typer.BadParameter("hosts and their keys are for --ssh; without it one folder is taken")
    init_files(folder or Path(*words), None)


@app.command(epilog=examples("pdchaos doctor -t target.yaml"))
def doctor(
    target: Annotated[
        str, typer.Option("--target", "-t", metavar="TARGET", help="A target file (pdchaos init writes one).")
    ],
    production: Annotated[
        bool,
        typer.Option("--production", metavar="", help="Send canaries to a target of `environment: production`, too."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of a table.")] = False,
) -> None:
    """Look at every precondition of a run: hosts, servers, what may be done to them, one canary on each path.

    It breaks nothing, but for this: a canary, which is one small request, is hung up on when it is not answered within
    60 s times the target's `time_scale` (at least 10 s). Exit code 0 when all is well, 2 for a mistake in the file (a
    key that is not there), 6 when the target is unfit, 5 when what it allows would be refused.
    """
    from chaos.cli.doctor import doctor as examine  # noqa: PLC0415

    raise typer.Exit(examine(target, production=production, as_json=json))


@app.command(epilog=examples("pdchaos sweep -t target.yaml --dry-run", "pdchaos sweep -t target.yaml"))
def sweep(
    target: Annotated[
        str, typer.Option("--target", "-t", metavar="TARGET", help="A target file (pdchaos init writes one).")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Only look, and tell what is there.")] = False,
    steal_lock: StealOpt = None,
    forget: Annotated[
        str,
        typer.Option(
            "--forget", metavar="ID", help="Only remove this record of a fault, as sweep names it; undo nothing."
        ),
    ] = "",
    because: Annotated[str, typer.Option("--because", metavar="REASON", help="With --forget: why.")] = "",
) -> None:
    """Find what runs left on a target's hosts (faults, processes, rules, locks) and take it back.

    What belongs to a run that lives is left alone; --steal-lock says why what holds this target's lock is not. What
    cannot be taken back is told with what to do by hand; --forget then removes its record, at your risk. Exit code 0
    when nothing is left, 8 when something is or a host cannot be asked.
    """
    from chaos.cli.sweeping import forget_record, sweep_target  # noqa: PLC0415

    if bool(forget) != bool(because.strip()) or (forget and (dry_run or steal_lock)):
        raise typer.BadParameter("--forget ID takes --because REASON, and nothing else but --target")
    if forget:
        raise typer.Exit(forget_record(target, forget, because))
    raise typer.Exit(sweep_target(target, dry=dry_run, steal=steal_lock or ""))


@app.command()
def demo(reports: ReportsOpt = Path("reports")) -> None:
    """See a wedge happen and be caught, then the same attack survived. About two minutes, nothing else needed."""
    from chaos.cli.demo import run_demo  # noqa: PLC0415

    raise typer.Exit(run_demo(reports))
