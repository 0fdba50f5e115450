"""Why hosts cannot be used, told once: what keeps us out of several of them is one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.errors import Refused, Unfit, UsageError, UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORST_FIRST = (UsageError, Refused, Unfit)


def grouped(failures: Mapping[str, UserError]) -> list[tuple[tuple[str, ...], UserError]]:
    """Why servers' hosts cannot be used: one error for all that have the same problem, with the ids of the servers.

    It names every host; the hint of the first stands for all.
    """
    servers: dict[tuple[type[UserError], str], list[str]] = {}
    for server, failure in failures.items():
        servers.setdefault((type(failure), _split(failure)[1]), []).append(server)
    told = []
    for (kind, said), its in servers.items():
        hosts = dict.fromkeys(host for server in its if (host := _split(failures[server])[0]))
        message = f"{', '.join(hosts)}: {said}" if hosts else said
        told.append((tuple(its), kind(message, hint=failures[its[0]].hint)))
    return told


def joined(failures: Mapping[str, UserError]) -> UserError:
    """One error for all; the gravest kind of them."""
    told = [error for _, error in grouped(failures)]
    if len(told) == 1:
        return told[0]
    kind = next((kind for kind in _WORST_FIRST if any(isinstance(one, kind) for one in told)), Unfit)
    number = len({_split(error) for error in failures.values()})
    lines = [f"\n  {one.message}" + (f"\n    hint: {one.hint}" if one.hint else "") for one in told]
    return kind(f"{number} hosts cannot be used:{''.join(lines)}")


def _split(failure: UserError) -> tuple[str, str]:
    """The host of which it is told (`Place.label`), and what; no host where it is of what the user wrote."""
    head, colon, said = failure.message.partition(": ")
    return (head, said) if colon and "@" in head and " " not in head else ("", failure.message)
