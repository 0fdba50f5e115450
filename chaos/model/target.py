"""What a target file says: where a deployment lives, how to look at it, and what may be done to it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chaos.model.scenario import Name, Section
from chaos.model.units import Duration


class ServerSpec(Section):
    """One server. `log` lists files that together hold both streams; the process is found by pid, pidfile or port."""

    url: str
    metrics: str | None = None  # default: url + the pack's metrics path
    log: list[str] = []
    pid: int | None = None
    pidfile: str | None = None
    port: int | None = None
    bootstrap_port: int | None = None
    name: Name | None = None  # default: role-ordinal


class Target(Section):
    """A whole target file."""

    version: Literal[1]
    name: Name
    about: str = ""
    environment: Literal["staging", "production"] = "staging"
    engine: str = "sglang"  # pack for prefill and decode
    router_engine: str = "sglang-router"  # pack for the router
    router: ServerSpec
    prefill: list[ServerSpec] = Field(min_length=1)
    decode: list[ServerSpec] = Field(min_length=1)
    model: str | None = None  # default: asked from /v1/models
    api_key: str | None = None  # by reference: env:NAME or file:PATH
    allow: list[str] = ["kill"]
    timeouts: dict[str, Duration] = {}  # engine timeouts that differ from the pack's defaults
    gauge_lag: Duration | None = None  # where it differs from the pack's
    time_scale: float = Field(default=1.0, gt=0, le=10)  # labs run engines with shortened clocks
