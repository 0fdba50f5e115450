"""`pdchaos sweep`: what runs left on the hosts of a target, taken back."""

from __future__ import annotations

import shlex
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from chaos.cli.boundary import interruptible
from chaos.engine.hosts import Hosts
from chaos.engine.hosts.failures import grouped
from chaos.engine.leftovers import Swept, forget, sweep
from chaos.engine.secrets import concealed
from chaos.launch.run import sigterm_is_ctrl_c
from chaos.launch.targets import open_target
from chaos.launch.telling import complain, note, tell
from chaos.model.errors import UsageError
from chaos.model.outcomes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.engine.leftovers import Item, Leftover, Living
    from chaos.model.errors import UserError
    from chaos.model.target import Target

TOLD = 5
"""Of the runs that live on a host so many are named; those that hold this target's lock come first."""


def sweep_target(reference: str, *, dry: bool, steal: str) -> int:
    """Sweep every host of a target file; 0 when nothing is left, 8 when something is, or nobody knows."""
    target = _standing(reference)
    with _reached(target) as (hosts, failures):
        swept = sweep(target, hosts, note, dry=dry, also_living=bool(steal))
    _show(swept, dry=dry, again=reference)
    for line in swept.unknown:
        complain(f"what is left there is unknown: {line}")
    clean = not (swept.left or swept.unknown or failures)
    return int(ExitCode.AS_EXPECTED if clean else ExitCode.CLEANUP_INCOMPLETE)


def forget_record(reference: str, name: str, reason: str) -> int:
    """Remove the record of a fault that nothing can undo, for a reason, and say that it is at the user's risk."""
    with _reached(_standing(reference)) as (hosts, _):
        gone = forget(hosts, name)
    print(concealed(f"removed {gone.path} on {gone.host}: {gone.text}"))  # noqa: T201
    complain(f"{name} is forgotten ({reason}): nothing was undone, and what it broke may still stand, at your risk")
    return int(ExitCode.AS_EXPECTED)


def _standing(reference: str) -> Target:
    target = open_target(reference, ()).standing
    if target is None:
        raise UsageError(
            "a lab of a run's own ends with the run, and leaves nothing to sweep", hint="--target takes a target file"
        )
    return target


@contextmanager
def _reached(target: Target) -> Iterator[tuple[Hosts, dict[str, UserError]]]:
    """The hosts that answer, and by server why others do not, which is told."""
    with interruptible(), sigterm_is_ctrl_c():
        hosts, failures = Hosts.reach(target, note)
        with closing(hosts):
            for _, error in grouped(failures):
                tell(error)
            yield hosts, failures


def _show(swept: Swept, *, dry: bool, again: str) -> None:
    console = Console(highlight=False, markup=False)
    if not swept.found:
        console.print("nothing of ours was left behind" if swept.living else "nothing of ours was found")
    else:
        table = Table("host", "run", "what", "now", box=None, pad_edge=False)
        for one in swept.found:
            table.add_row(one.host, one.item.run, _what(one.item), _now(one.item, dry=dry))
        console.print(table)
    for one in swept.found:
        _tell_how(one, again, console)
    by_host: dict[str, list[Living]] = {}
    for run in swept.living:
        by_host.setdefault(run.host, []).append(run)
    for host, runs in by_host.items():
        _tell_living(host, sorted(runs, key=lambda run: not run.ours), console)


def _tell_living(host: str, runs: Sequence[Living], console: Console) -> None:
    """Who lives on a host, and what may be done about it; the first few of many."""
    for run in runs[:TOLD]:
        things = f"{run.things} thing{'s' if run.things > 1 else ''}"
        console.print(f"left alone on {host}: {things} of {run.who}", soft_wrap=True)
        whose = "it holds the lock of this target: --steal-lock REASON takes all of it"
        console.print(f"  it lives, and {whose if run.ours else 'is not of this target'}", soft_wrap=True)
    if len(runs) > TOLD:
        console.print(f"and {len(runs) - TOLD} more on {host}, likewise left alone", soft_wrap=True)


def _tell_how(one: Leftover, again: str, console: Console) -> None:
    """What a person can do about what stays."""
    if one.item.gone or not one.item.by_hand:
        return
    record = f" (its record: {one.item.record})" if one.item.record else ""
    console.print(f"by hand, on {one.host}, about {_what(one.item)}{record}:", soft_wrap=True)
    for line in one.item.by_hand:
        console.print(f"    {line}", soft_wrap=True)
    if one.item.record:
        console.print("  once nothing of it stands any more, have its record forgotten:")
        words = ["pdchaos", "sweep", "--target", again, "--forget", one.item.name, "--because"]
        console.print(f"    {shlex.join(words)} REASON", soft_wrap=True)


def _what(item: Item) -> str:
    return item.what if item.kind == "lock" else f"{item.kind} {item.what}"


def _now(item: Item, *, dry: bool) -> str:
    if item.gone:
        return "removed"
    return "would be removed" if dry and not item.why else f"STILL THERE: {item.why or 'nobody knows why'}"
