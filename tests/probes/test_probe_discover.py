"""Discovery: what answers, what can be observed, what cannot and why, and when a run must not start."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from probe_helpers import VirtualClock, serving, text
from test_probe_exposition import STYLE

from chaos.engine.hosts import Here, Hosts
from chaos.engine.probes import Discovery, discover, make_http
from chaos.library import load_packs
from chaos.model.errors import Unfit, UsageError
from chaos.model.events import EngineTimeout, Plan
from chaos.model.target import LogFrom, ServerSpec, Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from chaos.model.pack import Pack

PACKS = {name: loaded.value for name, loaded in load_packs().items()}
PLAN = Plan(scenario="s", time_scale=0.1)


def engine(role: str, version: str = "0.5.14", **changes: object) -> dict[str, object]:
    """The handlers of an engine server."""

    async def info(request: web.Request) -> web.Response:
        return web.json_response({"version": version, "disaggregation_mode": role, "tp_size": 1, "extra": {}})

    return {"server_info": info, "health": text(""), "health_generate": text(""), "metrics": text(STYLE), **changes}


async def models(request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "tiny", "object": "model"}]})


ROUTER = {"health": text(""), "readiness": text(""), "v1__models": models}


@dataclass
class Deployment:
    """One router and as many engines as asked for."""

    router: dict[str, object] = field(default_factory=lambda: dict(ROUTER))
    prefill: list[dict[str, object]] = field(default_factory=lambda: [engine("prefill")])
    decode: list[dict[str, object]] = field(default_factory=lambda: [engine("decode")])

    @contextlib.asynccontextmanager
    async def up(self, **target: object) -> AsyncIterator[Target]:
        async with contextlib.AsyncExitStack() as stack:

            async def url(handlers: dict[str, object]) -> ServerSpec:
                return ServerSpec(url=await stack.enter_async_context(serving(**handlers)))

            yield Target(
                version=1,
                name="here",
                router=await url(self.router),
                prefill=[await url(one) for one in self.prefill],
                decode=[await url(one) for one in self.decode],
                **target,
            )


async def look(target: Target, packs: dict[str, Pack] | None = None, **changes: object) -> Discovery:
    async with make_http() as http:
        return await discover(
            target, packs or PACKS, PLAN, http=http, clock=VirtualClock(), hosts=Hosts.here(target), **changes
        )


async def test_a_whole_deployment_is_seen_with_what_each_node_lets_us_observe(tmp_path: Path) -> None:
    log = tmp_path / "prefill.log"
    log.write_text("old\n")
    async with Deployment().up() as target:
        prefill = target.prefill[0].model_copy(update={"log": [LogFrom(file=str(log))], "pid": os.getpid()})
        found = await look(target.model_copy(update={"prefill": [prefill]}))
    assert [
        ("router-0", "router", "sglang-router", "", ("liveness",)),
        ("prefill-0", "prefill", "sglang", "0.5.14", ("liveness", "metrics", "log", "process")),
        ("decode-0", "decode", "sglang", "0.5.14", ("liveness", "metrics")),
    ] == [(node.id, node.role, node.engine, node.version, node.observes) for node in found.seen.nodes]
    assert os.getpid() == found.seen.nodes[1].pid
    assert found.seen.nodes[1].start_time
    assert "tiny" == found.model
    assert any("decode-0: no log" in note for note in found.seen.not_examined)
    assert any("decode-0: process not watched" in note for note in found.seen.not_examined)


async def test_a_pack_without_direct_paths_leaves_the_pairs_to_the_router_and_says_so() -> None:
    routed_only = {**PACKS, "sglang": PACKS["sglang"].model_copy(update={"paths": "routed-only"})}
    async with Deployment().up() as target:
        one = await look(target, packs=routed_only)
    async with Deployment(decode=[engine("decode"), engine("decode")]).up() as target:
        two = await look(target, packs=routed_only)
    assert [("routed", True), ("prefill-0>decode-0", False)] == [(path.id, path.examined) for path in one.seen.paths]
    assert "only pair" in one.seen.paths[1].reason
    assert not any(note.startswith("path") for note in one.seen.not_examined)
    assert ["path prefill-0>decode-0", "path prefill-0>decode-1"] == [
        note.partition(":")[0] for note in two.seen.not_examined if note.startswith("path")
    ]


async def test_the_target_s_own_names_are_used() -> None:
    async with Deployment().up() as target:
        named = target.decode[0].model_copy(update={"name": "east"})
        found = await look(target.model_copy(update={"decode": [named]}))
    assert ["router-0", "prefill-0", "east"] == [node.id for node in found.seen.nodes]


async def test_metric_names_follow_the_version_and_all_are_tried_when_it_is_unknown() -> None:
    async def exposed(version: str) -> tuple[str, ...]:
        async with Deployment(prefill=[engine("prefill", version)]).up() as target:
            found = await look(target)
        metrics = found.nodes[1].metrics
        return next(wanted.exposed for wanted in metrics.wanted if len(pack_names(wanted.name)) > 1)

    def pack_names(canonical: str) -> tuple[str, ...]:
        return next(metric.exposed_as() for metric in PACKS["sglang"].metrics if metric.name == canonical)

    several = next(
        metric for metric in PACKS["sglang"].metrics if len(metric.aliases) > 1 and "prefill" in metric.roles
    )
    assert several.exposed_as("0.5.14") == await exposed("0.5.14")
    assert several.exposed_as("0.5.9") == await exposed("0.5.9")
    assert several.exposed_as("0.5.14") != several.exposed_as("0.5.9")
    assert several.exposed_as() == await exposed("built from source")


async def test_every_metric_says_what_it_is_for() -> None:
    async with Deployment().up() as target:
        found = await look(target)
    uses = {use.name: (use.kind, use.use) for use in found.seen.metrics}
    for pack in PACKS.values():
        if pack.name in ("sglang", "sglang-router"):
            assert {m.name: (m.kind, m.use) for m in pack.metrics}.items() <= uses.items()


async def test_timeouts_are_the_target_s_or_the_pack_s_on_the_deployment_s_clocks() -> None:
    first = PACKS["sglang"].timeouts[0]
    async with Deployment().up(timeouts={first.name: 7.0}) as target:
        told = await look(target)
    async with Deployment().up(gauge_lag=4.0) as target:
        default = await look(target)
    assert EngineTimeout(name=first.name, seconds=7.0, source="target") in told.seen.timeouts
    assert EngineTimeout(name=first.name, seconds=first.default * 0.1, source="pack default") in default.seen.timeouts
    assert PACKS["sglang"].gauge_lag * 0.1 == pytest.approx(told.seen.gauge_lag_s)
    assert 4.0 == default.seen.gauge_lag_s


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"metrics": text("no", status=404)}, "prefill-0: no metrics (HTTP 404)"),
        ({"metrics": text("<html>")}, "prefill-0: no metrics (cut"),
        ({"server_info": text("no", status=404)}, "prefill-0: version unknown (/server_info: HTTP 404)"),
        ({"server_info": text("[]")}, "prefill-0: version unknown (/server_info: "),
        ({"health_generate": text("no", status=404)}, "prefill-0: no /health_generate"),
    ],
)
async def test_what_cannot_be_observed_is_noted_with_its_reason(changes: dict[str, object], note: str) -> None:
    async with Deployment(prefill=[engine("prefill", **changes)]).up() as target:
        found = await look(target)
    assert any(one.startswith(note) for one in found.notes), found.notes
    if "metrics" in changes:
        assert "metrics" not in found.seen.nodes[1].observes


@pytest.mark.parametrize(
    ("promised", "problem"),
    [
        (
            {"log": [LogFrom(file="/nowhere/none.log")]},
            r"prefill-0: its log /nowhere/none\.log cannot be read \(No such file",
        ),
        ({"log": [LogFrom(file="/tmp")]}, r"prefill-0: its log /tmp cannot be read \(not a regular file"),
        (
            {"log": [LogFrom(file="/nowhere/*.log")]},
            r"prefill-0: its log /nowhere/\*\.log cannot be read \(no file matches\)",
        ),
        (
            {"log": [LogFrom(command="echo no such service >&2; exit 1")]},
            r"prefill-0: its log command:echo .* cannot be read \(no such service\)",
        ),
        ({"metrics": "http://127.0.0.1:1/metrics"}, r"prefill-0: no metrics at http://127\.0\.0\.1:1/metrics"),
        ({"pidfile": "/nowhere/none.pid"}, r"prefill-0: its process is not there"),
    ],
)
async def test_evidence_that_the_target_names_and_that_is_not_there_makes_it_unfit(
    promised: dict[str, object], problem: str
) -> None:
    async with Deployment().up() as target:
        prefill = target.prefill[0].model_copy(update=promised)
        with pytest.raises(Unfit, match=problem):
            await look(target.model_copy(update={"prefill": [prefill]}))


async def test_nodes_that_lead_to_one_process_are_refused_and_a_pid_of_another_host_is_another_process() -> None:
    async with Deployment(decode=[engine("decode"), engine("decode")]).up() as target:
        here = {"pid": os.getpid()}
        prefill, first, second = (one.model_copy(update=here) for one in (*target.prefill, *target.decode))
        shared = target.model_copy(update={"prefill": [prefill], "decode": [first, second]})
        with pytest.raises(Unfit) as refusal:
            await look(shared)
        by_host = Hosts({server.id: Here() for server in shared.servers}, Here())
        async with make_http() as http:
            apart = await discover(shared, PACKS, PLAN, http=http, clock=VirtualClock(), hosts=by_host)
    named = "prefill-0, decode-0, decode-1"
    assert f"the same process (pid {os.getpid()}) is found for each of {named}" == refusal.value.message
    assert refusal.value.hint
    assert {os.getpid()} == {node.pid for node in apart.seen.nodes if node.role != "router"}


async def test_a_server_that_does_not_answer_makes_the_target_unfit_and_all_of_them_are_named(
    unused_tcp_port: int,
) -> None:
    async with Deployment().up() as target:
        gone = ServerSpec(url=f"http://127.0.0.1:{unused_tcp_port}")
        with pytest.raises(Unfit) as refusal:
            await look(target.model_copy(update={"router": gone, "decode": [gone]}))
    assert "router-0 at" in refusal.value.message
    assert "decode-0 at" in refusal.value.message
    assert "prefill-0 at" not in refusal.value.message
    assert refusal.value.hint


async def test_swapped_addresses_are_noticed() -> None:
    async with Deployment(prefill=[engine("decode")], decode=[engine("prefill")]).up() as target:
        with pytest.raises(Unfit, match="disaggregation mode is 'decode', not 'prefill'"):
            await look(target)


async def test_an_unknown_pack_is_a_usage_error() -> None:
    async with Deployment().up() as target, make_http() as http:
        with pytest.raises(UsageError, match="no pack 'sglang-router'"):
            await discover(target, {}, PLAN, http=http, clock=VirtualClock(), hosts=Hosts.here(target))


async def test_a_key_is_sent_and_never_shown() -> None:
    sent: list[str] = []

    async def guarded(request: web.Request) -> web.Response:
        sent.append(request.headers.get("authorization", ""))
        return await models(request)

    async with Deployment(router={**ROUTER, "v1__models": guarded}).up() as target:
        found = await look(target, headers={"authorization": "Bearer sk-secret"})
    assert ["Bearer sk-secret"] == sent
    assert "sk-secret" not in repr(found)


async def test_without_any_named_model_a_default_is_asked_for_and_said() -> None:
    async with Deployment(router={"health": text("")}).up() as target:
        found = await look(target)
    assert ("default", True) == (found.model, any("names its model" in note for note in found.notes))


@pytest.mark.parametrize(
    ("version", "fixed_in"), [("0.5.14", "0.5.16"), ("0.5.16", ""), ("0.5.23", ""), ("", "0.5.16")]
)
async def test_a_line_of_a_bug_that_this_version_has_fixed_is_not_blamed_on_it(
    version: str, fixed_in: str, tmp_path: Path
) -> None:
    log = tmp_path / "prefill.log"
    log.touch()
    async with Deployment(prefill=[engine("prefill", version)]).up() as target:
        logged = target.prefill[0].model_copy(update={"log": [LogFrom(file=str(log))]})
        found = await look(target.model_copy(update={"prefill": [logged]}))
    signatures = next(one for one in found.nodes if one.node.role == "prefill").logs[0].signatures
    guard = next(one for one in signatures if one.id == "nixl-guard-assert")
    assert (fixed_in, bool(fixed_in)) == (guard.fixed_in, bool(guard.upstream))


async def test_a_log_that_cannot_be_read_on_another_host_is_named_with_that_host() -> None:
    class Gpu(Here):
        remote = True
        label = "ops@gpu1"

    async with Deployment().up() as target:
        lacking = target.prefill[0].model_copy(update={"log": [LogFrom(file="/nowhere/none.log")]})
        changed = target.model_copy(update={"prefill": [lacking]})
        there = Hosts({server.id: Gpu() for server in changed.servers}, Here())
        with pytest.raises(Unfit, match=r"none\.log cannot be read \(No such file or directory on ops@gpu1\)"):
            async with make_http() as http:
                await discover(changed, PACKS, PLAN, http=http, clock=VirtualClock(), hosts=there)
