"""KV over TCP: the prefill's transfer workers and the decode's receiving end.

One message is a header (magic, room, length, CRC-32), then the bytes; the receiver answers with the room and whether
length and checksum were right. As with RDMA, bytes for a room that decode has given up are taken and dropped.
"""

from __future__ import annotations

import asyncio
import struct
import time
import traceback
from typing import TYPE_CHECKING, Protocol

from chaos.lab.sim.config import LOOPBACK, Clocks
from chaos.lab.sim.gates import TRANSFER, Gates
from chaos.lab.sim.kv import checksum
from chaos.lab.sim.lines import Log
from chaos.lab.sim.rooms import KVPoll

if TYPE_CHECKING:
    from chaos.lab.sim.control import PrefillManager, TransferInfo
    from chaos.lab.sim.stats import NodeMetrics

WORKERS = 4  # SGLANG_DISAGGREGATION_QUEUE_SIZE
_MAGIC = b"SKV1"
_HEADER = struct.Struct("!4sQII")
_ACK = struct.Struct("!QB")


class TransportError(Exception):
    """The peer took the bytes and found them wrong."""


class TransferWorkers:
    """Send KV of rooms that were prefilled; whatever goes wrong fails the room and never ends a worker."""

    def __init__(
        self,
        manager: PrefillManager,
        gates: Gates,
        metrics: NodeMetrics,
        *,
        log: Log | None = None,
        least_s: float = 0.0,
        clocks: Clocks | None = None,
    ) -> None:
        self.manager = manager
        self.gates = gates
        self.metrics = metrics
        self.log = log or Log()
        self.least_s = least_s  # no transfer is faster
        self.clocks = clocks or Clocks()
        self._queue: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    def enqueue(self, room: int, kv: bytes) -> None:
        """Send this room's KV when a worker is free."""
        self._queue.put_nowait((room, kv))

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._worker())

    async def _worker(self) -> None:
        links: Links = {}
        try:
            while True:
                room, kv = await self._queue.get()
                await self.gates.passed(TRANSFER)
                await self.transfer(room, kv, links)
        finally:
            for link in links.values():
                link.close()

    async def transfer(self, room: int, kv: bytes, links: Links) -> None:
        """One room, whatever comes of it; a seam for builds."""
        rooms = self.manager.rooms
        if rooms.poll(room) is KVPoll.FAILED or not rooms.known(room):
            return  # it ended while it waited here
        try:
            await self.send(room, kv, links)
        except (OSError, EOFError, TransportError) as error:
            self.log(f"NIXL transport error for room {room}: {error}")
            rooms.fail(room, f"NIXL transport error for room {room}: {error}")
        except Exception as error:  # noqa: BLE001, the engine's worker survives everything
            self.log(f"Unexpected transfer worker error for room {room}\n{traceback.format_exc().rstrip()}")
            rooms.fail(room, str(error))
        self.manager.wake()

    async def send(self, room: int, kv: bytes, links: Links) -> None:
        """Move one room's KV to its decode node and wait until it has arrived."""
        info = self.manager.transfer_infos[room]
        self.manager.rooms.move(room, KVPoll.TRANSFERRING)
        await self.deliver(info, room, kv, links)
        if self.manager.rooms.known(room):  # it may have been aborted and cleared meanwhile
            self.manager.rooms.move(room, KVPoll.SUCCESS)

    async def deliver(self, info: TransferInfo, room: int, kv: bytes, links: Links) -> None:
        """The bytes themselves, whatever has become of the room."""
        began = time.monotonic()
        peer = self.manager.peers[info.agent]
        link = links.get(info.agent)
        if link is None:
            link = links[info.agent] = await Link.open(peer.host, peer.kv_port)
        try:
            await asyncio.sleep(self.least_s)
            await link.send(room, kv)
        except (OSError, EOFError, TransportError):
            links.pop(info.agent).close()
            raise
        took = max(time.monotonic() - began, 1e-6)
        self.metrics.observe("kv_transfer_latency_ms", took * 1000)
        self.metrics.observe("kv_transfer_speed_gb_s", len(kv) / took / 1e9)


class Link:
    """One connection to a decode node's KV port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> Link:
        """Connect."""
        return cls(*await asyncio.open_connection(host, port))

    async def send(self, room: int, kv: bytes) -> None:
        """Send one room's KV; TransportError when it did not arrive whole."""
        self._writer.write(_HEADER.pack(_MAGIC, room, len(kv), checksum(kv)) + kv)
        await self._writer.drain()
        acked, ok = _ACK.unpack(await self._reader.readexactly(_ACK.size))
        if acked != room or not ok:
            raise TransportError(f"NIXL transfer encountered ERR {room=}")

    def close(self) -> None:
        """Close it."""
        self._writer.close()


Links = dict[str, Link]  # a worker's, by agent


class KvSink(Protocol):
    """Takes KV that arrived whole."""

    def on_kv(self, room: int, received: bytes, /) -> None:
        """A room's KV is here, with the right length and checksum."""


class KvServer:
    """The decode's KV port."""

    def __init__(self, sink: KvSink) -> None:
        self._sink = sink
        self.port = 0

    async def start(self, address: str = LOOPBACK) -> asyncio.Server:
        """Listen on a free port; the decode node tells it in its registration."""
        server = await asyncio.start_server(self._serve, address, 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                magic, room, length, crc = _HEADER.unpack(await reader.readexactly(_HEADER.size))
                if magic != _MAGIC:
                    return
                kv = await reader.readexactly(length)
                ok = checksum(kv) == crc
                if ok:
                    self._sink.on_kv(room, kv)
                writer.write(_ACK.pack(room, ok))
        except (OSError, EOFError):
            pass  # the prefill node went away, its rooms fail by heartbeat or timeout
        finally:
            writer.close()
