"""Free ports for engines that cannot be handed a socket that already listens."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

from chaos.lab.kinds import LOOPBACK
from chaos.model.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST, _LAST = 20_000, 32_000  # below the range from which the kernel gives ports to connections


def free_ports() -> Iterator[int]:
    """Ports that nobody listens on at this moment, never the same one twice."""
    for port in random.sample(range(_FIRST, _LAST), _LAST - _FIRST):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        yield port
    raise LabError(f"no free port was found between {_FIRST} and {_LAST}")
