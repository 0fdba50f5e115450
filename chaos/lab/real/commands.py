"""What the command lines of all real engines have in common: a model's name, where a node listens, what it inherits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from chaos.lab.kinds import RUN_ID_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

MODEL_NAME = "pdchaos-tiny"
NodeRole = Literal["router", "prefill", "decode"]

_KEPT = ("PATH", "LANG", "LC_ALL", "TZ")  # of our environment; a proxy or an engine's variable would change the lab


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node listens."""

    role: NodeRole
    name: str
    address: str
    port: int

    @property
    def url(self) -> str:
        """Its HTTP address."""
        return f"http://{self.address}:{self.port}"


def plain_environment(scratch: Path, run_id: str) -> dict[str, str]:
    """Nothing of an engine's; sockets, caches and other files go to `scratch`, a folder that dies with the lab."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, RUN_ID_VARIABLE: run_id, "TMPDIR": str(scratch), "HOME": str(scratch)}
