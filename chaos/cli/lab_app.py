"""Names and options of `pdchaos lab`; each body hands over to `labs.py`."""

from __future__ import annotations

from typing import Annotated

import typer

from chaos.cli.options import SetOpt, examples

lab_app = typer.Typer(
    help="Deployments that pdchaos starts itself; no cluster and no GPU needed.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@lab_app.command("list")
def lab_list(
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            metavar="",
            help="With the options for --set, and every stand-in for a part of the engine.",
        ),
    ] = False,
) -> None:
    """List labs, their builds and versions, and what is installed."""
    from chaos.cli.labs import show_catalogue  # noqa: PLC0415

    show_catalogue(verbose=verbose)


@lab_app.command("install", epilog=examples("pdchaos lab install sglang@0.5.14 sglang@0.5.16"))
def lab_install(
    names: Annotated[list[str], typer.Argument(metavar="NAME@VERSION...", help="As listed by pdchaos lab list.")],
) -> None:
    """Install versions of a real engine into a cache folder of their own ($PDCHAOS_LABS)."""
    from chaos.cli.labs import install  # noqa: PLC0415

    install(names)


@lab_app.command("remove")
def lab_remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME@VERSION...", help="As listed by pdchaos lab list.")],
) -> None:
    """Remove installed versions; with the last one, what they share."""
    from chaos.cli.labs import remove  # noqa: PLC0415

    remove(names)


@lab_app.command("up", epilog=examples("pdchaos lab up sim@nixl-abort-unhandled --hours 2"))
def lab_up(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="As listed by pdchaos lab list: sim, sim@BUILD, sglang@VERSION.")
    ],
    set_: SetOpt = [],  # noqa: B006
    hours: Annotated[
        float, typer.Option(min=0.01, max=72, metavar="HOURS", help="It ends by itself after so many hours.")
    ] = 1.0,
) -> None:
    """Start a lab and keep it up; prints the target file to use."""
    from chaos.cli.labs import bring_up  # noqa: PLC0415

    bring_up(name, set_, hours=hours)


@lab_app.command("down")
def lab_down(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="As given to lab up; default: every lab that is up.")
    ] = None,
) -> None:
    """End a lab that was kept up."""
    from chaos.cli.labs import take_down  # noqa: PLC0415

    take_down(name)


@lab_app.command("restart")
def lab_restart(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As given to lab up, or the folder of its target file.")],
    node: Annotated[str, typer.Argument(metavar="NODE", help="Such as prefill-0.")],
    variant: Annotated[
        str | None, typer.Option("--as", metavar="VARIANT", help="Bring it up as a variant, e.g. other-transfer.")
    ] = None,
) -> None:
    """Restart a node of a lab that was kept up; its target file says so for every node."""
    from chaos.cli.labs import restart  # noqa: PLC0415

    restart(name, node, variant)


@lab_app.command("status")
def lab_status() -> None:
    """Show the labs that are up."""
    from chaos.cli.labs import show_status  # noqa: PLC0415

    show_status()
