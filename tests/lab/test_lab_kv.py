"""KV bytes: the text depends on every one of them, and what arrives is checked."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from chaos.lab.sim import kv
from chaos.lab.sim.control import Peer, PrefillManager, TransferInfo
from chaos.lab.sim.gates import PREFILL, TRANSFER, Gates
from chaos.lab.sim.rooms import KVPoll
from chaos.lab.sim.stats import NodeMetrics
from chaos.lab.sim.transfer import KvServer, TransferWorkers

PROMPT = "a prompt with [[secret:mine]] in it and " + "x" * 200


@given(st.text())
def test_a_prompt_can_be_read_back_from_its_kv(prompt):
    cached = kv.make_kv(kv.tokenize(prompt))
    assert prompt.split() == kv.read_kv(cached).split()
    assert len(kv.tokenize(prompt)) * kv.BYTES_PER_TOKEN == len(cached)


@given(st.integers(min_value=0))
def test_any_wrong_byte_of_the_kv_changes_the_text(where):
    right = kv.make_kv(kv.tokenize(PROMPT))
    wrong = bytearray(right)
    wrong[where % len(wrong)] ^= 1
    assert text(right) != text(bytes(wrong))


def test_foreign_kv_gives_a_foreign_secret():
    assert "[[secret:theirs]]" == kv.Continuation.of(kv.make_kv(kv.tokenize("[[secret:theirs]] x"))).token(0)


def text(cached: bytes) -> list[str]:
    continuation = kv.Continuation.of(cached)
    return [continuation.token(index) for index in range(1, 9)]


class Sink:
    def __init__(self) -> None:
        self.took: dict[int, bytes] = {}

    def on_kv(self, room: int, received: bytes) -> None:
        self.took[room] = received


async def one_transfer(corrupt: bool) -> tuple[PrefillManager, Sink]:
    """A room's KV through a real connection, with a byte flipped on the way if asked to."""
    sink, manager = Sink(), PrefillManager()
    server = KvServer(sink)
    listening = await server.start()
    port = server.port
    middle = None
    if corrupt:
        middle = await asyncio.start_server(lambda r, w: flip(r, w, server.port), "127.0.0.1", 0)
        port = middle.sockets[0].getsockname()[1]
    manager.on_register(Peer("agent", "127.0.0.1", 1, port))
    manager.on_transfer_info(TransferInfo(7, "agent", "127.0.0.1", 1))
    workers = TransferWorkers(manager, Gates((PREFILL, TRANSFER)), NodeMetrics(engine_type="prefill", model="m", pid=1))
    done = asyncio.Event()
    manager.wake = done.set
    running = asyncio.create_task(workers.run())
    workers.enqueue(7, kv.make_kv(kv.tokenize(PROMPT)))
    await done.wait()
    running.cancel()
    for each in (listening, middle):
        if each is not None:
            each.close()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})  # both ends close their connections
    return manager, sink


async def flip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", port)
    sent = bytearray(await reader.readexactly(20 + len(kv.make_kv(kv.tokenize(PROMPT)))))
    sent[100] ^= 1
    back.write(bytes(sent))
    writer.write(await there.readexactly(9))
    await writer.drain()
    for each in (back, writer):
        each.close()
        await each.wait_closed()


async def test_kv_that_arrives_whole_is_taken():
    manager, sink = await one_transfer(corrupt=False)
    assert kv.make_kv(kv.tokenize(PROMPT)) == sink.took[7]
    assert KVPoll.SUCCESS is manager.rooms.poll(7)


async def test_kv_with_one_wrong_byte_is_refused_and_fails_its_room():
    manager, sink = await one_transfer(corrupt=True)
    assert {} == sink.took
    assert KVPoll.FAILED is manager.rooms.poll(7)
    assert "NIXL transport error for room 7" in manager.rooms.reason(7)
