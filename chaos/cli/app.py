"""Names and options of every command but those of labs; each body hands over to the module of that command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chaos import __version__
from chaos.cli.lab_app import lab_app
from chaos.cli.options import DEFAULT_TARGET, ReportsOpt, ScenarioArg, SetOpt, StealOpt, TargetOpt, WithOpt

app = typer.Typer(
    name="pdchaos",
    help="Break a prefill/decode LLM deployment on purpose and prove whether it wedged.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 as expected, 1 violation, 2 usage or invalid file, 3 inconclusive, 4 harness error, "
    "5 refused, 6 target unfit, 8 cleanup incomplete, 9 violation and cleanup incomplete, 130 interrupted.",
)
app.add_typer(lab_app, name="lab")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"pdchaos {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Break a prefill/decode LLM deployment on purpose and prove whether it wedged."""


@app.command()
def run(
    scenario: ScenarioArg,
    target: TargetOpt = DEFAULT_TARGET,
    with_: WithOpt = [],  # noqa: B006 - the library copies it
    set_: SetOpt = [],  # noqa: B006
    reports: ReportsOpt = Path("reports"),
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines even on a terminal.")] = False,
    production: Annotated[
        bool, typer.Option("--production", help="Break a target of `environment: production`; asks for its name.")
    ] = False,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="That name, where nobody can be asked.")
    ] = None,
    steal_lock: StealOpt = None,
) -> None:
    """Run one scenario against one target and judge what happened.

    The first Ctrl-C lets open requests finish and judges; the second leaves at once. Everything is recorded in a run
    folder that `pdchaos judge` can judge again. A scenario with `trials` or a `sweep` makes several runs, each on a
    fresh deployment; there the first Ctrl-C lets the present run go to its end.
    """
    from chaos.cli.campaigns import run as run_scenario  # noqa: PLC0415
    from chaos.cli.launch import Launch  # noqa: PLC0415

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


@app.command()
def judge(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="A run folder, its journal.jsonl, or a campaign's folder.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print verdict.json instead of the panel.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the folder's verdict and reports anew.")] = False,
) -> None:
    """Judge a recorded run or campaign again, with the rules of this version."""
    from chaos.cli.judging import judge_again  # noqa: PLC0415

    raise typer.Exit(judge_again(run_dir, as_json=json, write=write))


@app.command()
def autopsy(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with an observations.yaml.")],
    init: Annotated[
        bool, typer.Option("--init", help="Write a commented observations.yaml into DIR to start from, and stop.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Make the run folder here, instead of in --reports.")
    ] = None,
    reports: ReportsOpt = Path("reports"),
) -> None:
    """Judge an incident from evidence that people have collected: logs, metrics, and what they noted.

    DIR holds an observations.yaml that names the logs and scrapes beside it and states what was seen: fresh requests
    and what became of them, processes, health checks, what was done. The same judge judges it as a run of ours;
    questions that only a run can answer do not arise. Prose is never read for meaning. `pdchaos schema observations`
    prints the file's schema.
    """
    from chaos.cli.autopsy import autopsy as judge_folder  # noqa: PLC0415
    from chaos.cli.autopsy import begin_autopsy  # noqa: PLC0415

    if init:
        begin_autopsy(folder)
        return
    raise typer.Exit(judge_folder(folder, reports, out))


@app.command()
def plan(
    scenario: ScenarioArg,
    target: TargetOpt = DEFAULT_TARGET,
    with_: WithOpt = [],  # noqa: B006
    set_: SetOpt = [],  # noqa: B006
) -> None:
    """Print what a run would do, with every duration resolved; touches nothing."""
    from chaos.cli.planning import show_plan  # noqa: PLC0415

    show_plan(scenario, target, overrides=with_, lab_options=set_)


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenario, target, pack, observations files.")],
) -> None:
    """Check files and report every problem at once as file:line:col."""
    from chaos.cli.files import check_files  # noqa: PLC0415

    raise typer.Exit(check_files(files))


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(metavar="scenario|target|pack|observations", help="Which file's schema.")],
) -> None:
    """Print the JSON Schema of a kind of file, for editors."""
    from chaos.cli.files import show_schema  # noqa: PLC0415

    show_schema(kind)


@app.command()
def scenarios() -> None:
    """List the scenarios that come with pdchaos."""
    from chaos.cli.files import list_scenarios  # noqa: PLC0415

    list_scenarios()


@app.command()
def init(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DIR | USER@HOST...]", help="Where to put the files; with --ssh the hosts."),
    ] = None,
    ssh: Annotated[
        bool,
        typer.Option("--ssh", help="For servers on hosts over SSH: the router's, a prefill's, and those of decode."),
    ] = False,
    folder: Annotated[Path | None, typer.Option("--dir", metavar="DIR", help="Where to put the files.")] = None,
    identity: Annotated[str, typer.Option("--identity", metavar="FILE", help="The key to log in with.")] = "",
    known_hosts: Annotated[str, typer.Option("--known-hosts", metavar="FILE", help="The keys of the hosts.")] = "",
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


@app.command()
def doctor(
    target: Annotated[str, typer.Option("--target", "-t", metavar="TARGET", help="A target file.")],
    production: Annotated[
        bool, typer.Option("--production", help="Send canaries to a target of `environment: production`, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Look at every precondition of a run: hosts, servers, what may be done to them, one canary on each path.

    It breaks nothing, but for this: a canary, which is one small request, is hung up on when it is not answered within
    60 s. Exit code 0 when all is well, 2 for a mistake in the file (a key that is not there), 6 when the
    target is unfit, 5 when what it allows would be refused.
    """
    from chaos.cli.doctor import doctor as examine  # noqa: PLC0415

    raise typer.Exit(examine(target, production=production, as_json=json))


@app.command()
def sweep(
    target: Annotated[str, typer.Option("--target", "-t", metavar="TARGET", help="A target file.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look.")] = False,
    steal_lock: StealOpt = None,
    forget: Annotated[
        str, typer.Option("--forget", metavar="ID", help="Only remove this record of a fault; undo nothing.")
    ] = "",
    because: Annotated[str, typer.Option("--because", metavar="REASON", help="Why it is forgotten.")] = "",
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
