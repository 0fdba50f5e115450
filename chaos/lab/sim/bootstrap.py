"""The prefill's bootstrap HTTP server: tells decode nodes where the control sockets are.

Its `/health` always answers OK while the process lives; it says nothing about the control thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from chaos.lab.sim.control import ControlLoop

_ALL = "-1"
_COORDINATES = ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")


class BootstrapServer:
    """Routes of the bootstrap port."""

    def __init__(self, *, dp_size: int = 1, tp_size: int = 1) -> None:
        self._dp_size = dp_size
        self._tp_size = tp_size
        self._ranks: dict[tuple[str, ...], dict[str, object]] = {}
        self._dp_ranks: dict[str, int] = {}

    def register(self, control: ControlLoop) -> None:
        """A rank registers itself."""
        where = {"rank_ip": control.address, "rank_port": control.port}
        self._ranks[str(control.dp), "0", str(control.tp), "0"] = where

    def app(self) -> web.Application:
        """The application."""
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/route", self._route)
        app.router.add_post("/register_dp_rank", self._register_dp_rank)
        app.router.add_post("/query_dp_ranks", self._query_dp_ranks)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _route(self, request: web.Request) -> web.Response:
        wanted = tuple(request.query.get(name, "") for name in _COORDINATES)
        if "" in wanted:
            return web.Response(text="Missing inputs for bootstrap server.", status=400)
        there = len(self._ranks)
        if there < self._dp_size * self._tp_size:
            text = f"Prefill server not fully registered yet ({there} workers registered)."
            return web.Response(text=text, status=503)
        if all(each == _ALL for each in wanted):
            return web.json_response(
                {
                    "attn_tp_size": self._tp_size,
                    "attn_cp_size": 1,
                    "dp_size": self._dp_size,
                    "pp_size": 1,
                    "page_size": 1,
                    "kv_cache_dtype": "auto",
                    "follow_bootstrap_room": True,
                }
            )
        rank = self._ranks.get(wanted)
        return web.json_response(rank) if rank else web.Response(text="Bootstrap info not Found", status=404)

    async def _register_dp_rank(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._dp_ranks[str(body["bootstrap_room"])] = int(body["dp_rank"])
        return web.Response(text="OK")

    async def _query_dp_ranks(self, request: web.Request) -> web.Response:
        rooms = (await request.json()).get("bootstrap_rooms", [])
        return web.json_response({str(room): self._dp_ranks.get(str(room), 0) for room in rooms})
