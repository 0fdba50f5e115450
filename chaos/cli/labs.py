"""`pdchaos lab`: what labs there are, and labs that stay up between runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from chaos.cli.boundary import interruptible
from chaos.lab import keeper
from chaos.lab.catalogue import KINDS, catalogue, find_installer
from chaos.lab.real.cache import describe_size
from chaos.launch.targets import parse_options
from chaos.launch.telling import note
from chaos.model.errors import LabError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chaos.lab.kinds import BuildInfo


def show_catalogue(*, verbose: bool) -> None:
    """Print every lab, its builds, what is installed of it; with `verbose` also its options and stand-ins."""
    console = Console(highlight=False)
    for lab in catalogue():
        console.print(f"lab:{lab.name} ({lab.kind}): {lab.about}", markup=False)
        for build in lab.builds:
            _show_build(console, build)
        _show_installed(console, lab.name)
        if verbose:
            options = _table("--set option", "default", "about")
            for option in lab.options:
                options.add_row(option.name, option.default, option.about)
            console.print(options)
            for title, lines in (("stand-ins", lab.standins), ("notes", lab.notes)):
                if lines:
                    console.print(f"  {title}:")
                for line in lines:
                    console.print(Padding(Text(f"- {line}"), (0, 0, 0, 4)))
        console.print()
    if not verbose:
        console.print("options and stand-ins: pdchaos lab list --verbose", markup=False)


def _show_build(console: Console, build: BuildInfo) -> None:
    """One under the other, so that a narrow terminal shows it, too; the name begins its line, to be copied."""
    versions = f"  engine {build.version}" + (f", fixed in {build.fixed_in}" if build.fixed_in else "")
    console.print(Text(build.name, "bold") + Text(versions))
    for told, style in ((build.about, ""), (build.upstream, "dim")):
        if told:
            console.print(Padding(Text(told, style), (0, 0, 0, 4)))


def _show_installed(console: Console, name: str) -> None:
    installer = KINDS[name].installer
    if installer is None:
        return
    there = installer.installed()
    if not there:
        console.print(f"  none is installed: pdchaos lab install {name}@VERSION", markup=False)
        return
    versions = ", ".join(f"{each.version} ({describe_size(each.size_bytes)})" for each in there)
    shared = f"; shared by all: {describe_size(installer.shared_bytes)}" if installer.shared_bytes else ""
    console.print(f"  installed: {versions}{shared}", markup=False)
    console.print(f"  in {there[0].folder.parent}", markup=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):  # a name that is cut cannot be copied, nor one that goes on below
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    return table


def install(names: Sequence[str]) -> None:
    """Install `kind@version` one after the other."""
    for kind, version in [_versioned(name) for name in names]:
        with interruptible():
            find_installer(kind).install(version, note)
        print(f"installed: lab:{kind}@{version}")  # noqa: T201


def remove(names: Sequence[str]) -> None:
    """Remove `kind@version` one after the other."""
    for kind, version in [_versioned(name) for name in names]:
        find_installer(kind).remove(version)
        print(f"removed: lab:{kind}@{version}")  # noqa: T201


def _versioned(name: str) -> tuple[str, str]:
    kind, _, version = name.removeprefix("lab:").partition("@")
    find_installer(kind)
    if not version:
        raise UsageError(f"{name}: which version?", hint=f"for example {kind}@{KINDS[kind].info().builds[0].name}")
    return kind, version


def bring_up(name: str, options: Sequence[str], *, hours: float) -> None:
    """Start a lab that outlives this command."""
    name = name.removeprefix("lab:")
    with interruptible():
        status = keeper.up(name, parse_options(options), keeper.default_folder(name), note, ttl_s=hours * 3600)
    print(f"{status.lab} is up for {hours:g} h, pids {' '.join(map(str, status.pids))}")  # noqa: T201
    print(f"target file: {status.target}")  # noqa: T201


def restart(lab: str, node: str, variant: str | None) -> None:
    """Restart a node of a kept lab, named as it was brought up or by its folder."""
    folder = Path(lab) if "/" in lab else keeper.default_folder(lab.removeprefix("lab:"))
    with interruptible():
        keeper.restart(folder, node, variant)
    print(f"{node} was restarted" + (f" as {variant}" if variant else ""))  # noqa: T201


def take_down(name: str | None) -> None:
    """End one kept lab, or all."""
    folders = [keeper.default_folder(name.removeprefix("lab:"))] if name else list(_folders())
    up = [folder for folder in folders if keeper.status(folder).state is not keeper.State.DOWN]
    if not up:
        raise UsageError(
            f"{name or 'no lab'} is up" if not name else f"{name} is not up", hint="see `pdchaos lab status`"
        )
    for folder in up:
        left = keeper.down(folder)
        if left:
            raise LabError(f"processes that did not end: {', '.join(map(str, left))}")
        print(f"{folder.name} is down")  # noqa: T201


def show_status() -> None:
    """Print every kept lab."""
    up = [status for folder in _folders() if (status := keeper.status(folder)).state is not keeper.State.DOWN]
    for status in up:
        dead = f" (dead: {' '.join(map(str, status.dead))})" if status.dead else ""
        print(f"{status.lab}: {status.state.value}{dead}, ends by itself in {status.seconds_left / 60:.0f} min")  # noqa: T201
        print(f"    target file: {status.target}")  # noqa: T201
        print(f"    pids: {' '.join(map(str, status.pids))}")  # noqa: T201
    if not up:
        print("no lab is up")  # noqa: T201


def _folders() -> Iterable[Path]:
    root = keeper.default_folder().parent
    return sorted(path for path in root.glob("*") if path.is_dir()) if root.is_dir() else []
