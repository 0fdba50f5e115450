"""What an agent is told on its first line of stdin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.secrets import header_values, look_up
from chaos.model.target import Tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.model.scenario import Group
    from chaos.model.target import Target

ORPHAN_DRAIN_S = 20.0
"""How long an agent whose harness died may let its requests finish: hanging up would be the fault we study."""


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent checks an https server."""

    verify: bool
    ca: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where sessions go and as whom."""

    base_url: str
    model: str
    unix_socket: str | None = None  # of a relay, through which local agents reach it
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Tls = field(default_factory=Tls)

    @classmethod
    def of(cls, target: Target, model: str, unix_socket: str | None = None) -> Endpoint:
        """The router of a target."""
        return cls(
            base_url=target.router.url,
            model=model,
            unix_socket=unix_socket,
            api_key=look_up(target.api_key),
            headers=header_values(target.headers),
            tls=target.tls,
        )


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's configuration line; see `chaos.agent`."""

    group: str
    run: str
    seed: int
    base_url: str
    api: str
    stream: bool
    model: str
    headers: dict[str, str]
    api_key: str | None
    tls: TlsConfig
    sessions: int
    first_session: int
    rounds: int
    prompt_tokens: int
    max_tokens: int
    timeout_s: float
    ramp_s: float
    rate_per_s: float | None
    think_s: float
    phase_slots: int
    ignore_eos: bool
    temperature: float
    owner: str | None
    rid: bool
    path: str = "routed"
    unix_socket: str | None = None
    orphan_drain_s: float = ORPHAN_DRAIN_S


def agent_config(
    group: Group,
    *,
    endpoint: Endpoint,
    run_id: str,
    seed: int,
    first: int,
    owner: str | None = None,
    rid: bool = False,
) -> AgentConfig:
    """The configuration of one group's agent whose sessions are numbered from `first`.

    `owner` begins the owners of its codewords; without one its prompts have none. With `rid` requests are named in
    their bodies, so that an engine can be told to abort them.
    """
    slots = group.saturate.max_sessions if group.saturate else group.sessions
    return AgentConfig(
        group=group.name,
        run=run_id,
        seed=seed,
        base_url=endpoint.base_url,
        api=group.api,
        stream=group.stream,
        model=group.model or endpoint.model,
        headers={**endpoint.headers, **header_values(group.headers, f"load {group.name}: ")},
        api_key=look_up(group.api_key, f"load {group.name}: api_key") or endpoint.api_key,
        tls=TlsConfig(verify=endpoint.tls.verify, ca=endpoint.tls.ca),
        sessions=group.sessions,
        first_session=first,
        rounds=group.rounds,
        prompt_tokens=group.prompt_tokens,
        max_tokens=group.max_tokens,
        timeout_s=group.timeout,
        ramp_s=group.arrival.ramp,
        rate_per_s=group.arrival.rate,
        think_s=group.think_time,
        phase_slots=slots,
        ignore_eos=group.ignore_eos,
        temperature=group.temperature,
        owner=owner,
        rid=rid,
        unix_socket=endpoint.unix_socket,
    )
