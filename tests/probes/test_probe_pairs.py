"""Pairs asked by themselves: both servers get the same body, the answer is decode's, and neither is ever hung up."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from probe_helpers import ModelServer, Recorder, VirtualClock, serving, settle, until
from test_probe_discover import Deployment, engine, look

from chaos.engine.ports import SystemClock
from chaos.engine.probes.canary import (
    MAX_OPEN,
    PAIRS_PER_TURN,
    SOON_BESIDE_PAIRS,
    CanaryProbe,
    Pair,
    Route,
    pair_soon,
)
from chaos.engine.probes.http import make_http
from chaos.engine.probes.pairs import MOST_PAIRS, Rendezvous, host_of, rendezvous, rooms
from chaos.model.events import Path, RequestEnded, RequestOverdue, RequestStarted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chaos.engine.probes import Discovery

PREFILL_EVENTS = (b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}\n\n', b"data: [DONE]\n\n")


# ---------------------------------------------------------------------------------------------- which pairs


async def found(prefill: int, decode: int, *, port: bool = True, dp_size: int = 1) -> Discovery:
    async def info(request: web.Request) -> web.Response:
        return web.json_response({"version": "0.5.14", "disaggregation_mode": "prefill", "dp_size": dp_size})

    servers = Deployment(prefill=[engine("prefill", server_info=info)] * prefill, decode=[engine("decode")] * decode)
    async with servers.up() as target:
        with_port = [spec.model_copy(update={"bootstrap_port": 8998 if port else None}) for spec in target.prefill]
        return await look(target.model_copy(update={"prefill": with_port}))


async def test_with_a_bootstrap_port_every_pair_is_examined_by_itself() -> None:
    paths = (await found(2, 2)).seen.paths
    assert ["routed", *(f"prefill-{p}>decode-{d}" for p in (0, 1) for d in (0, 1))] == [path.id for path in paths]
    assert {True} == {path.examined for path in paths}


async def test_without_a_bootstrap_port_no_pair_is_and_the_reason_is_told() -> None:
    seen = (await found(1, 2, port=False)).seen
    assert [True, False, False] == [path.examined for path in seen.paths]
    assert all("no bootstrap_port for prefill-0" in path.reason for path in seen.paths[1:])
    assert any("prefill-0>decode-1: the target gives no bootstrap_port" in note for note in seen.not_examined)


async def test_of_very_many_pairs_so_many_are_examined_that_each_node_is_in_one() -> None:
    seen = (await found(3, 7)).seen
    assert MOST_PAIRS < 3 * 7
    asked = [path for path in seen.paths if path.kind == "direct" and path.examined]
    assert 7 == len(asked)
    assert {node.id for node in seen.nodes if node.role != "router"} == {n for path in asked for n in path.nodes}
    left = [path for path in seen.paths if not path.examined]
    assert all("one of 21 pairs" in path.reason for path in left)


async def test_each_data_parallel_rank_of_a_pair_is_a_path_of_its_own() -> None:
    seen = (await found(1, 1, dp_size=4)).seen
    ranks = [path for path in seen.paths if path.kind == "rank"]
    assert [f"prefill-0>decode-0 dp{rank}" for rank in range(4)] == [path.id for path in ranks]
    assert [(rank, 4, ("prefill-0", "decode-0")) for rank in range(4)] == [(p.rank, p.of_ranks, p.nodes) for p in ranks]
    assert ["routed"] == [path.id for path in seen.paths if path.kind != "rank"]


async def test_very_many_ranks_of_pairs_take_turns() -> None:
    assert MOST_PAIRS < 2 * 2 * 8
    assert [1, 8, 8, 8, 8] == [path.ranks for path in (await found(2, 2, dp_size=8)).seen.paths]


@pytest.mark.parametrize(
    ("url", "host"),
    [("http://10.0.0.5:30000", "10.0.0.5"), ("https://p.example:1/x", "p.example"), ("http://[::1]:30", "[::1]")],
)
def test_decode_finds_prefill_by_the_host_of_its_url(url: str, host: str) -> None:
    assert host == host_of(url)


async def test_a_target_may_say_by_which_host_decode_reaches_prefill() -> None:
    async with Deployment().up() as target:
        spec = target.prefill[0].model_copy(update={"bootstrap_port": 7, "bootstrap_host": "prefill.cluster"})
        seen = await look(target.model_copy(update={"prefill": [spec]}))
    assert Rendezvous(host="prefill.cluster", port=7) == rendezvous(seen.nodes[1])


def test_rooms_of_a_pair_reach_every_rank_in_turn_and_paths_do_not_share_them() -> None:
    pair = Path(id="prefill-0>decode-0", kind="direct", nodes=("prefill-0", "decode-0"))
    one, other = list(itertools.islice(rooms(pair), 64)), list(itertools.islice(rooms(pair), 64))
    for ranks in (1, 2, 3, 8):
        for start in range(32):
            assert set(range(ranks)) == {room % ranks for room in one[start : start + ranks]}
    assert not {*one} & {*other}
    assert 0 <= min(one) < max(one) < 1 << 63


def test_rooms_of_a_rank_choose_that_rank_only_and_are_never_the_same() -> None:
    for rank in range(3):
        path = Path(
            id=f"prefill-0>decode-0 dp{rank}", kind="rank", nodes=("prefill-0", "decode-0"), rank=rank, of_ranks=3
        )
        numbers = list(itertools.islice(rooms(path), 64))
        assert {rank} == {room % 3 for room in numbers}
        assert 64 == len({*numbers})


# ---------------------------------------------------------------------------------------------- on the wire


@dataclass
class Both:
    """A pair of servers with a probe on it."""

    prefill: ModelServer = field(default_factory=lambda: ModelServer(events=PREFILL_EVENTS))
    decode: ModelServer = field(default_factory=ModelServer)
    emit: Recorder = field(default_factory=Recorder)
    canary: CanaryProbe | None = None

    def open(self) -> Both:
        self.prefill.gate.set()
        self.decode.gate.set()
        return self

    @contextlib.asynccontextmanager
    async def up(self, **settings: object) -> AsyncIterator[Both]:
        async with serving(v1=self.prefill) as prefill, serving(v1=self.decode) as decode, make_http() as http:
            pair = Pair(url=prefill + "/v1", at=Rendezvous(host="here", port=8998), rooms=itertools.count(40))
            self.canary = CanaryProbe(
                [Route(path="prefill-0>decode-0", url=decode + "/v1", api="chat", pair=pair)],
                http=http,
                emit=self.emit,
                clock=SystemClock(),
                run_id="r1",
                model="m",
                **{"interval_s": 60.0, "deadline_s": 20.0, **settings},
            )
            self.canary.pause()
            async with asyncio.TaskGroup() as group:
                group.create_task(self.canary.run())
                await settle()
                try:
                    yield self
                finally:
                    await self.canary.close()


async def ended(both: Both) -> RequestEnded:
    async with both.up():
        await both.canary.last(20.0)
    (end,) = both.emit.of(RequestEnded)
    return end


async def test_both_servers_get_the_same_body_with_host_port_and_room_and_decode_s_answer_counts() -> None:
    both = Both().open()
    end = await ended(both)
    (asked,) = [body for _, body, _ in both.prefill.asked]
    assert asked == both.decode.asked[0][1]
    assert ("here", 8998, 40) == (asked["bootstrap_host"], asked["bootstrap_port"], asked["bootstrap_room"])
    assert (True, 2, "length", "prefill-0>decode-0") == (end.ok, end.tokens, end.finish, end.path)
    assert [40] == [start.room for start in both.emit.of(RequestStarted)]
    assert (0, 0) == (both.prefill.hung_up, both.decode.hung_up)


async def test_a_prefill_that_never_ends_holds_the_canary_although_decode_has_answered() -> None:
    both = Both()
    both.decode.gate.set()
    async with both.up():
        await both.canary.last(0.1)
        assert ([], 1) == (both.emit.of(RequestEnded), len(both.emit.of(RequestOverdue)))
        assert (0, 0) == (both.prefill.hung_up, both.decode.hung_up)
        both.prefill.gate.set()
        await until(lambda: both.emit.of(RequestEnded))
    assert both.emit.of(RequestEnded)[0].ok


async def test_a_decode_that_fails_while_prefill_waits_hangs_up_on_nobody() -> None:
    both = Both(decode=ModelServer(status=500))
    both.decode.gate.set()
    async with both.up():
        await both.canary.last(0.1)
        await asyncio.sleep(0.1)
        assert (1, 0, []) == (both.canary.open_count, both.prefill.hung_up, both.emit.of(RequestEnded))
        both.prefill.gate.set()
        await until(lambda: both.emit.of(RequestEnded))
    (end,) = both.emit.of(RequestEnded)
    assert (False, "status", 500, "server", 0) == (end.ok, end.error, end.status, end.ended_by, both.prefill.hung_up)


class Cut(ModelServer):
    async def __call__(self, request: web.Request) -> web.StreamResponse:
        await self.gate.wait()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@pytest.mark.parametrize("cut", ["prefill", "decode"])
async def test_when_our_own_way_to_one_side_breaks_the_canary_is_over_for_both(
    cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.engine.probes.exchange.describe", lambda _error: ("way", "gone"))
    both = Both(**{cut: Cut()})
    other = both.decode if cut == "prefill" else both.prefill
    getattr(both, cut).gate.set()
    async with both.up():
        await both.canary.last(20.0)
        (end,) = both.emit.of(RequestEnded)
        assert ("way", "harness", 0) == (end.error, end.ended_by, both.canary.open_count)
        await until(lambda: other.hung_up == 1)
    assert [end] == both.emit.of(RequestEnded)


@pytest.mark.parametrize(
    ("prefill", "error", "status"),
    [
        (ModelServer(status=503), "status", 503),
        (ModelServer(events=(b'data: {"error":{"message":"Aborted by AbortReq."}}\n\n',)), "in-band", 200),
    ],
)
async def test_a_prefill_that_fails_fails_the_canary_and_is_named(
    prefill: ModelServer, error: str, status: int
) -> None:
    end = await ended(Both(prefill=prefill).open())
    assert (False, error, status) == (end.ok, end.error, end.status)
    assert end.detail.startswith("prefill: ")


async def test_a_prefill_need_not_say_more_than_that_it_is_done() -> None:
    assert (await ended(Both(prefill=ModelServer(events=())).open())).ok


async def test_closing_hangs_up_both_sides_and_says_so_once() -> None:
    both = Both()
    async with both.up():
        await both.canary.last(0.05)
    await until(lambda: (1, 1) == (both.prefill.hung_up, both.decode.hung_up))
    assert [("cancelled", "harness")] == [(end.error, end.ended_by) for end in both.emit.of(RequestEnded)]


# ---------------------------------------------------------------------------------------------- pace


@contextlib.asynccontextmanager
async def paced(
    pairs: int, *, answers: bool, soon: int = 3
) -> AsyncIterator[tuple[CanaryProbe, VirtualClock, Recorder]]:
    """A routed path and some pairs on virtual time, all of which answer at once or never."""
    import httpx
    from test_probe_canary import answered, never

    clock, emit = VirtualClock(), Recorder()
    async with httpx.AsyncClient(transport=httpx.MockTransport(answered if answers else never)) as http:
        probe = CanaryProbe(
            [
                Route(path="routed", url="http://r/", api="chat", soon=SOON_BESIDE_PAIRS),
                *(
                    Route(
                        path=f"pair-{n}",
                        url="http://d/",
                        api="chat",
                        pair=Pair(url="http://p/", at=Rendezvous(host="p", port=1), rooms=itertools.count()),
                        soon=pair_soon(1),
                    )
                    for n in range(pairs)
                ),
            ],
            http=http,
            emit=emit,
            clock=clock,
            run_id="r1",
            model="m",
            interval_s=1.0,
            deadline_s=6.0,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(probe.run())
            await settle()
            try:
                yield probe, clock, emit
            finally:
                await probe.close()


def starts(emit: Recorder, path: str) -> list[float]:
    first = emit.of(RequestStarted)[0].intended_ns
    return [(one.intended_ns - first) / 1e9 for one in emit.of(RequestStarted) if one.path == path]


async def test_a_pair_that_answers_is_asked_as_often_as_the_router_while_somebody_waits_for_it() -> None:
    async with paced(1, answers=True) as (_, clock, emit):
        await clock.advance(4.5)
    assert starts(emit, "routed") == starts(emit, "pair-0") == [0, 1, 2, 3, 4]


async def test_unhurried_a_pair_is_asked_half_as_often_and_one_that_hangs_no_further() -> None:
    async with paced(1, answers=True) as (probe, clock, emit):
        probe.hurry(on=False)
        await clock.advance(6.5)
    assert [0, 2, 4, 6] == starts(emit, "pair-0")
    async with paced(1, answers=False) as (probe, clock, emit):
        probe.hurry(on=False)
        await clock.advance(60)
        assert [0] == starts(emit, "pair-0")
        probe.hurry(on=True)
        await clock.advance(1)
        assert 2 == len(starts(emit, "pair-0"))


async def test_many_pairs_take_turns_and_no_turn_starts_more_than_a_few() -> None:
    async with paced(12, answers=True) as (_, clock, emit):
        await clock.advance(11.5)
    turns = [starts(emit, f"pair-{n}") for n in range(12)]
    assert {4} == {len(turn) for turn in turns}
    each_second = [sum(second in turn for turn in turns) for second in range(12)]
    assert PAIRS_PER_TURN == max(each_second)


async def test_a_pair_that_hangs_holds_few_slots_and_is_asked_again_when_time_has_gone_by() -> None:
    async with paced(1, answers=False) as (probe, clock, emit):
        await clock.advance(17)
        assert [0, 2, 6] == starts(emit, "pair-0")
        assert [0, 1, 3, 7, 13] == starts(emit, "routed")
        await clock.advance(600)
        assert [24, 42, 60] == starts(emit, "pair-0")[3:]
        assert 6 + MAX_OPEN == probe.open_count
        assert [] == emit.of(RequestEnded)


def test_pairs_of_one_decode_node_share_what_may_soon_hang_on_it() -> None:
    assert [3, 3, 2, 1, 1] == [pair_soon(prefill) for prefill in (1, 2, 3, 4, 16)]
