"""How simultaneous a kill wave is: SIGKILL of a real agent against SIGKILL of a process that only holds sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from chaos.engine.pyz import build_pyz

SESSIONS = 300
ROUNDS = 5
HOLDER = """
import socket, sys, time
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
for one in held: one.sendall(b"POST / HTTP/1.1\\r\\n\\r\\n")
time.sleep(60)
"""


class Server:
    """Accepts connections, never answers, and notes when each client left."""

    def __init__(self) -> None:
        self.open = 0
        self.left: list[float] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hold one connection."""
        self.open += 1
        try:
            while await reader.read(65536):
                pass
        except ConnectionResetError:
            pass
        self.left.append(time.monotonic())
        self.open -= 1
        writer.close()


async def spread_ms(server: Server, start: list[str], config: bytes | None) -> float:
    """Milliseconds between the first and the 99th-percentile disconnect as the server saw it."""
    process = subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    if config is not None and process.stdin is not None:
        process.stdin.write(config + b"\n")
        process.stdin.flush()
    while server.open < SESSIONS:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)
    server.left.clear()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while len(server.left) < SESSIONS:
        await asyncio.sleep(0.02)
    left = sorted(server.left)
    return (left[int(SESSIONS * 0.99) - 1] - left[0]) * 1e3


async def measure() -> None:
    """Print both spreads and their ratio."""
    server = Server()
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, backlog=1024)
    port = listening.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        pyz = build_pyz(Path(folder) / "agent.pyz")
        config = msgspec.json.encode(
            {
                "group": "bench",
                "base_url": f"http://127.0.0.1:{port}",
                "api": "chat",
                "sessions": SESSIONS,
                "phase_file": f"{folder}/phases",
                "phase_slots": SESSIONS,
            }
        )
        ours, bare = [], []
        for _ in range(ROUNDS):
            ours.append(await spread_ms(server, [sys.executable, str(pyz)], config))
            bare.append(await spread_ms(server, [sys.executable, "-c", HOLDER, str(port), str(SESSIONS)], None))
    listening.close()
    print(f"{SESSIONS} sessions, median of {ROUNDS}: agent {statistics.median(ours):.1f} ms")
    print(f"bare socket holder {statistics.median(bare):.1f} ms")
    print(f"ratio {statistics.median(ours) / statistics.median(bare):.2f}x")


def main() -> None:
    """Measure."""
    asyncio.run(measure())
