"""Traffic of our own between two hosts, to measure what passes: an ear at one end, calls at the other. All bounded.

An ear takes datagrams and one kind of connection on ports that the kernel chooses; only what bears its secret counts.
A knock is a connection opened and closed again: an answer, also a refusal, shows that packets go both ways.
"""

from __future__ import annotations

import ipaddress
import secrets
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Callable

from chaos.outpost.addresses import is_v4, resolve
from chaos.outpost.trouble import Trouble

SECRET_BYTES = 8
SEQ_BYTES = 4
DATAGRAM = 64
BLOCK = 64 * 1024
MOST_EAR_S = 120.0
MOST_DATAGRAMS = 5000
MOST_BURST_S = 10.0
MOST_BURST = 256 * 1024 * 1024
LOOK_S = 0.1
ROOM = 4 * 1024 * 1024
SO_RCVBUFFORCE = 33
"""asm-generic/socket.h: past the limit for everybody, for whoever has CAP_NET_ADMIN."""


class _Ear:
    """Listens until it is closed or its time is over."""

    def __init__(self, address: str, lasts_s: float) -> None:
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self.heard: set[int] = set()
        self.took = 0
        self.first_ns = 0
        self.last_ns = 0
        self.done = threading.Event()
        self._until = time.monotonic() + min(lasts_s, MOST_EAR_S)
        family = socket.AF_INET if is_v4(address) else socket.AF_INET6
        self.udp, self.tcp = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_STREAM)
        for one in (self.udp, self.tcp):
            try:
                one.bind((address, 0))
            except OSError:  # an address that is translated on its way here
                one.bind(("0.0.0.0" if is_v4(address) else "::", 0))
            one.setblocking(False)
        _make_room(self.udp)
        self.tcp.listen(8)
        threading.Thread(target=self._listen, name="pdchaos-ear", daemon=True).start()

    def _listen(self) -> None:
        open_ones: dict[socket.socket, bytes] = {}
        try:
            while not self.done.is_set() and time.monotonic() < self._until:
                ready, _, _ = select.select([self.udp, self.tcp, *open_ones], [], [], LOOK_S)
                for one in ready:
                    if one is self.udp:
                        self._take_datagrams()
                    elif one is self.tcp:
                        self._accept(open_ones)
                    elif not self._take_bytes(one, open_ones):
                        del open_ones[one]
                        one.close()
        finally:
            for one in (self.udp, self.tcp, *open_ones):
                one.close()

    def _take_datagrams(self) -> None:
        for _ in range(MOST_DATAGRAMS):
            try:
                said = self.udp.recv(DATAGRAM)
            except OSError:
                return
            if said.startswith(self.secret):
                self.heard.add(int.from_bytes(said[SECRET_BYTES : SECRET_BYTES + SEQ_BYTES], "big"))

    def _accept(self, open_ones: dict[socket.socket, bytes]) -> None:
        try:
            one, _ = self.tcp.accept()
        except OSError:
            return
        one.setblocking(False)
        open_ones[one] = b""

    def _take_bytes(self, one: socket.socket, open_ones: dict[socket.socket, bytes]) -> bool:
        try:
            got = one.recv(BLOCK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not got:
            return False
        if len(open_ones[one]) < SECRET_BYTES:
            open_ones[one] += got[:SECRET_BYTES]
            return self.secret.startswith(open_ones[one][:SECRET_BYTES])
        now = time.monotonic_ns()
        if self.first_ns:
            self.took += len(got)  # the first block begins the time, so it is not counted in it
        self.first_ns, self.last_ns = self.first_ns or now, now
        return True


def _make_room(udp: socket.socket) -> None:
    """Let datagrams wait for a thread that gets no CPU: what overflows would be taken for lost on the way."""
    for option in (SO_RCVBUFFORCE, socket.SO_RCVBUF):
        with suppress(OSError):
            udp.setsockopt(socket.SOL_SOCKET, option, ROOM)
            return


_EARS: dict[str, _Ear] = {}


def ear(name: str, lasts_s: float) -> dict[str, Any]:
    """Open an ear at an address of this host (or its name). Gives its `id`, ports, `secret`, and whether it is `v4`."""
    address = resolve([name])[0]
    everywhere = "0.0.0.0" if is_v4(address) else "::"
    try:
        opened = _Ear(everywhere if ipaddress.ip_address(address).is_loopback else address, lasts_s)
    except OSError as error:
        raise Trouble("denied", f"this host lets nobody listen: {error.strerror}") from None
    name = secrets.token_hex(8)
    _EARS[name] = opened
    ports = {"udp": opened.udp.getsockname()[1], "tcp": opened.tcp.getsockname()[1]}
    return {"id": name, "v4": is_v4(address), "secret": opened.secret.hex(), **ports}


def heard(ear: str, *, forget: bool = False) -> dict[str, Any]:
    """What an ear has heard: distinct datagrams, bytes of bursts and over which time. `forget` begins anew."""
    opened = _EARS.get(ear)
    if opened is None:
        raise Trouble("missing", "there is no such ear")
    passed_s = (opened.last_ns - opened.first_ns) / 1e9
    told = {"datagrams": len(opened.heard), "bytes": opened.took, "seconds": passed_s}
    if forget:
        opened.heard, opened.took, opened.first_ns, opened.last_ns = set(), 0, 0, 0
    return told


def close_ear(ear: str) -> None:
    """Close an ear; one that is closed stays so."""
    opened = _EARS.pop(ear, None)
    if opened is not None:
        opened.done.set()


def shower(name: str, port: int, secret: str, count: int, every_ms: float, *, v4: bool = True) -> dict[str, int]:
    """Send numbered datagrams to an ear, evenly; `sent` says how many this host's kernel took."""
    address, began, sent = _address(name, v4), time.monotonic(), 0
    with socket.socket(socket.AF_INET if is_v4(address) else socket.AF_INET6, socket.SOCK_DGRAM) as out:
        for seq in range(min(count, MOST_DATAGRAMS)):
            body = bytes.fromhex(secret) + seq.to_bytes(SEQ_BYTES, "big")
            try:
                out.sendto(body.ljust(DATAGRAM, b"."), (address, port))
                sent += 1
            except OSError:
                pass  # EPERM: dropped on its way out; ECONNREFUSED: nobody listens there
            time.sleep(max(began + (seq + 1) * every_ms / 1e3 - time.monotonic(), 0))
    return {"sent": sent}


def burst(
    name: str, port: int, secret: str, most_bytes: int, most_s: float, buffer: int = BLOCK, *, v4: bool = True
) -> dict[str, float]:
    """Send as fast as goes to an ear, over one connection. Raises Trouble `silent` when there is none.

    The kernel hands down packets as large as the `buffer` allows, so a slow way needs a small one.
    """
    address, most_s = _address(name, v4), min(most_s, MOST_BURST_S)
    try:
        out = socket.create_connection((address, port), timeout=most_s)
    except OSError as error:
        raise Trouble("silent", f"there was no connection: {error}") from None
    block, left, began = bytes(BLOCK), min(most_bytes, MOST_BURST), time.monotonic()
    with out:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        try:
            out.sendall(bytes.fromhex(secret))
            while left > 0 and (rest_s := began + most_s - time.monotonic()) > 0:
                out.settimeout(rest_s)
                left -= out.send(block[:left])
        except OSError:
            pass  # its time is over, or the ear's is; what arrived is counted there
    return {"sent": min(most_bytes, MOST_BURST) - left, "seconds": time.monotonic() - began}


def knock(name: str, port: int, times: int = 1, wait_s: float = 2.0) -> dict[str, Any]:
    """Open and close connections, one by one: how many were `open`, `refused`, `silent`, and how long each took.

    A refusal comes from the other host: packets go there and back. Other errors of the network count as silence.
    """
    told: dict[str, Any] = {"open": 0, "refused": 0, "silent": 0, "ms": []}
    address = resolve([name])[0]
    for _ in range(min(times, 200)):
        began = time.monotonic()
        answer = _one_knock(address, port, wait_s)
        told[answer] += 1
        if answer != "silent":
            told["ms"].append((time.monotonic() - began) * 1e3)
    return told


def _address(name: str, v4: bool) -> str:
    """An address of a name, of the family in which its ear listens. Raises Trouble."""
    found = next((address for address in resolve([name]) if is_v4(address) == v4), None)
    if found is None:
        raise Trouble("unknown-name", "this host knows no address of the family in which the other one listens")
    return found


def _one_knock(address: str, port: int, wait_s: float) -> str:
    try:
        socket.create_connection((address, port), timeout=wait_s).close()
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "silent"
    return "open"


OPS: dict[str, Callable[..., Any]] = {
    "net.ear": ear,
    "net.heard": heard,
    "net.close_ear": close_ear,
    "net.shower": shower,
    "net.burst": burst,
    "net.knock": knock,
}
