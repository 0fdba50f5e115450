"""Asks one server about itself: who it is, which of its endpoints answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.probes.exposition import BadExposition, Exposition
from chaos.engine.probes.http import TRANSPORT_ERRORS, describe
from chaos.engine.probes.liveness import health_deadline
from chaos.engine.probes.metrics import fetch_exposition

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from chaos.model.pack import Endpoints

ASK_S = 10.0
"""How long information may take: SGLang's asks its scheduler first."""
_NO_SUCH_ENDPOINT = frozenset({404, 405, 501})


MAX_RANKS = 4096
"""No deployment has more ranks; what a server says is not trusted with our memory."""


class Info(msgspec.Struct, frozen=True):
    """What a server says of itself, as far as it matters."""

    version: str | None = None
    disaggregation_mode: str | None = None
    tp_size: int | None = None
    dp_size: int | None = None

    @property
    def ranks(self) -> tuple[str, ...]:
        """Data-parallel by tensor-parallel ranks; none for a server that does not tell, has one, or tells nonsense."""
        dp, tp = self.dp_size or 1, self.tp_size or 1
        if not 1 < dp * tp <= MAX_RANKS:
            return ()
        return tuple(f"dp{d}.tp{t}" for d in range(dp) for t in range(tp))


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A server's answers. `silent` is why nothing at all answered, empty when something did."""

    info: Info
    models: tuple[str, ...]
    liveness: tuple[str, ...]
    silent: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    path: str
    status: int | None
    body: bytes
    error: str


class Inquiry:
    """Questions with one client, key and time scale."""

    def __init__(self, http: httpx.AsyncClient, headers: Mapping[str, str], time_scale: float) -> None:
        self._http = http
        self._headers = dict(headers)
        self._health_s = health_deadline(time_scale)

    async def ask(self, base_url: str, endpoints: Endpoints) -> Said:
        """Ask every endpoint that tells something, all at once; does not raise for what a server does."""
        paths = {path: ASK_S for path in (endpoints.info, endpoints.models) if path}
        paths |= dict.fromkeys(endpoints.liveness, self._health_s)
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(self._get(base_url, path, within_s)) for path, within_s in paths.items()]
        asked = {one.path: one for one in (task.result() for task in asking)}
        silent = "" if any(one.status for one in asked.values()) else _why(list(asked.values()))
        notes = []
        info = Info()
        if endpoints.info and not silent:
            info, note = _info(asked[endpoints.info])
            notes += [f"version unknown ({note})"] if note else []
        live = tuple(path for path in endpoints.liveness if asked[path].status not in _NO_SUCH_ENDPOINT)
        notes += [f"no {path}" for path in endpoints.liveness if path not in live]
        return Said(
            info=info,
            models=_models(asked[endpoints.models]) if endpoints.models else (),
            liveness=live,
            silent=silent,
            notes=tuple(notes),
        )

    async def metrics_error(self, url: str) -> str:
        """Why the metrics at `url` cannot be read; empty when they can."""
        try:
            Exposition(()).read(await fetch_exposition(self._http, url, self._headers))
        except BadExposition as bad:
            return str(bad)
        except TimeoutError:
            return "no answer"
        except TRANSPORT_ERRORS as error:
            return ": ".join(describe(error))
        return ""

    async def _get(self, base_url: str, path: str, within_s: float) -> _Asked:
        try:
            async with asyncio.timeout(within_s):
                response = await self._http.get(base_url + path, headers=self._headers)
        except TimeoutError:
            return _Asked(path, None, b"", f"{path}: no answer in {within_s:g} s")
        except TRANSPORT_ERRORS as error:
            return _Asked(path, None, b"", ": ".join(describe(error)))
        return _Asked(path, response.status_code, response.content, "")


def _why(asked: list[_Asked]) -> str:
    return next((one.error for one in asked if one.error), "the pack knows no endpoint to ask")


def _info(asked: _Asked) -> tuple[Info, str]:
    if asked.status != 200:
        return Info(), asked.error or f"{asked.path}: HTTP {asked.status}"
    try:
        return msgspec.json.decode(asked.body, type=Info), ""
    except (msgspec.MsgspecError, RecursionError) as error:
        return Info(), f"{asked.path}: {error}"


def _models(asked: _Asked) -> tuple[str, ...]:
    if asked.status != 200:
        return ()
    try:
        return tuple(model.id for model in msgspec.json.decode(asked.body, type=_Models).data)
    except (msgspec.MsgspecError, RecursionError):
        return ()
