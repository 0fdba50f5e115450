"""How the parts of a network fault must fit together: rates that can be made, ports that may be closed, two ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.network import LEAST_BIT_PER_S, MOST_BIT_PER_S, SSH_PORT
from chaos.model.tree import child, number_of, positive, seconds_of, text_of
from chaos.model.units import parse_bandwidth, told_bandwidth
from chaos.model.yamlpos import Mapping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.model.errors import Problem
    from chaos.model.yamlpos import Node


def check_network(action: Node | None) -> Iterator[Problem]:
    """Everything that no single field of a network fault can know."""
    if not isinstance(action, Mapping):
        return
    yield from _check_ends(action)
    yield from _check_port(action)
    yield from _check_rate(action)
    yield from positive(action, "delay")
    delay, jitter = seconds_of(action, "delay"), seconds_of(action, "jitter")
    if delay is not None and jitter is not None and jitter > delay:
        yield action.values["jitter"].mark.problem("`jitter` is more than the delay itself", "nothing arrives earlier")


def _check_ends(action: Mapping) -> Iterator[Problem]:
    where = child(action, "where")
    for key in ("from", "to"):
        peers = child(action, key)
        node = text_of(peers, "node")
        if isinstance(peers, Mapping) and node is not None and node == text_of(where, "node"):
            yield peers.values["node"].mark.problem(f"{node} is both ends", "a host has no network to itself")


def _check_port(action: Mapping) -> Iterator[Problem]:
    port = child(action, "port")
    if port is None:
        return
    if number_of(action, "port") == SSH_PORT:
        yield port.mark.problem("port 22 is that of SSH, which is never touched")
    if text_of(action, "port") == "bootstrap" and text_of(child(action, "where"), "role") in ("router", "decode"):
        yield port.mark.problem("only prefill nodes have a bootstrap port", "where: {role: prefill}")


def _check_rate(action: Mapping) -> Iterator[Problem]:
    try:
        rate = parse_bandwidth(text_of(action, "rate"))
    except ValueError:
        return
    if not LEAST_BIT_PER_S <= rate <= MOST_BIT_PER_S:
        bounds = f"{told_bandwidth(LEAST_BIT_PER_S)} to {told_bandwidth(MOST_BIT_PER_S)}"
        yield action.values["rate"].mark.problem(f"a rate can be made from {bounds}")
