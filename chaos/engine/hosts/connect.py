"""Opens SSH connections: a TCP connection or a way through jump hosts, the host's key checked, ours accepted."""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import paramiko

from chaos.engine.hosts.keys import authenticate
from chaos.engine.hosts.known import Key, Known
from chaos.model.errors import Unfit

if TYPE_CHECKING:
    from chaos.engine.hosts.place import Place

CIPHER = "aes128-gcm@openssh.com"
"""By far the fastest in Python's hands: one call of the crypto library does encryption and integrity."""
WINDOW_BYTES = 1 << 20
"""What may be under way to us: more makes a slow link's answers to pings late."""
KEEPALIVE_S = 15
LOGIN_S = 20.0
CLOSING_S = 2.0
_LOOK_S = 0.1

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # what went wrong is told by us


class Attempt:
    """An attempt to connect, which another thread may give up at any moment."""

    def __init__(self) -> None:
        self.given_up = threading.Event()
        self._lock = threading.Lock()
        self._made: list[paramiko.Transport] = []

    def made(self, transport: paramiko.Transport) -> None:
        """This connection belongs to it."""
        with self._lock:
            self._made.append(transport)
        if self.given_up.is_set():
            self.give_up()

    def hand_over(self, transport: paramiko.Transport) -> None:
        """This connection is somebody else's now."""
        with self._lock:
            self._made = [one for one in self._made if one is not transport]

    def give_up(self) -> None:
        """Close whatever was opened for it; whoever waits for an answer gets an error soon."""
        self.given_up.set()
        with self._lock:
            made, self._made = self._made, []
        for transport in made:
            hang_up(transport)


def connect(place: Place, ways: Ways, attempt: Attempt) -> paramiko.Transport:
    """A connection that is open for channels. Raises UserError with what is wrong and how to mend it."""
    sock = _reach(place, ways, attempt)
    transport = paramiko.Transport(sock, default_window_size=WINDOW_BYTES)
    attempt.made(transport)
    try:
        _greet(transport, place)
        authenticate(transport, place)
        transport.set_keepalive(KEEPALIVE_S)
    except (paramiko.SSHException, OSError, EOFError) as error:
        hang_up(transport)
        raise Unfit(f"{place.label}: the SSH connection broke off: {error or 'it was closed'}") from None
    except BaseException:
        hang_up(transport)
        raise
    return transport


def hang_up(transport: paramiko.Transport) -> None:
    """Close a connection and wait for its thread, a moment at most."""
    with suppress(Exception):  # whatever state it is in
        transport.close()
    with suppress(Exception):
        transport.sock.close()
    if transport.ident is not None and transport is not threading.current_thread():
        transport.join(CLOSING_S)


class Ways:
    """Connections to jump hosts, which those behind them share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Place, threading.Lock] = {}
        self._open: dict[Place, paramiko.Transport] = {}
        self._closed = False

    def through(self, place: Place, attempt: Attempt) -> paramiko.Transport:
        """A connection to a jump host, opened unless it is open."""
        with self._lock:
            lock = self._locks.setdefault(place, threading.Lock())
        with lock:
            transport = self._open.get(place)
            if transport is None or not transport.is_active():
                transport = self._open[place] = connect(place, self, attempt)
                attempt.hand_over(transport)  # others come through it, too
            if self._closed:
                hang_up(transport)
            return transport

    def drop(self, place: Place) -> None:
        """Do not use this connection again: nothing comes through it."""
        with self._lock:
            transport = self._open.pop(place, None)
        if transport is not None:
            hang_up(transport)

    def close(self) -> None:
        """Close all of them."""
        self._closed = True
        for place in list(self._open):
            self.drop(place)


def _reach(place: Place, ways: Ways, attempt: Attempt) -> socket.socket | paramiko.Channel:
    if place.through is not None:
        return _reach_through(place, place.through, ways, attempt)
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unfit(
            f"{place.label}: the name {place.host} is not known ({error.strerror})", hint="check `host` under `ssh`"
        ) from None
    failure = OSError()
    for family, _, _, _, address in found:
        try:
            return _dial(family, address, place.timeout_s, attempt)
        except TimeoutError:
            failure = TimeoutError(0, f"no answer within {place.timeout_s:g} s")
        except OSError as error:
            failure = error
    hint = "is it up, and may we get there? hosts behind another one need `jump`"
    if isinstance(failure, ConnectionRefusedError):
        hint = "is its sshd running, on this `port`?"
    raise Unfit(f"{place.label}: {place.host}:{place.port}: {failure.strerror or failure}", hint=hint)


def _dial(family: int, address: object, timeout_s: float, attempt: Attempt) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect_ex(address)  # type: ignore[arg-type]
        _await_connected(sock, time.monotonic() + timeout_s, attempt)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def _await_connected(sock: socket.socket, deadline: float, attempt: Attempt) -> None:
    while not select.select([], [sock], [], _LOOK_S)[1]:
        if attempt.given_up.is_set() or time.monotonic() > deadline:
            raise TimeoutError
    if number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, os.strerror(number))


def _reach_through(place: Place, jump: Place, ways: Ways, attempt: Attempt) -> paramiko.Channel:
    transport = ways.through(jump, attempt)
    try:
        return transport.open_channel(
            "direct-tcpip", (place.host, place.port), ("127.0.0.1", 0), timeout=place.timeout_s
        )
    except paramiko.ChannelException as error:
        hint = "AllowTcpForwarding must be on at the jump host" if error.code == 1 else "is its sshd running?"
        raise Unfit(
            f"{place.label}: {jump.label} cannot get to {place.host}:{place.port} ({error.text})", hint=hint
        ) from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        ways.drop(jump)
        raise Unfit(f"{place.label}: the way through {jump.label} broke off: {error or 'it was closed'}") from None


def _greet(transport: paramiko.Transport, place: Place) -> None:
    """Agree on keys and ciphers, and check that it is the host that it should be."""
    known = Known.of(place)
    options = transport.get_security_options()
    options.key_types = known.preferred(tuple(options.key_types))
    if CIPHER in options.ciphers:
        options.ciphers = (CIPHER, *(one for one in options.ciphers if one != CIPHER))
    transport.banner_timeout = transport.handshake_timeout = place.timeout_s
    transport.auth_timeout = LOGIN_S
    try:
        transport.start_client(timeout=2 * place.timeout_s)
        shown = transport.get_remote_server_key()
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise Unfit(
            f"{place.label}: {place.host}:{place.port} takes connections, but did not answer as an SSH server: "
            f"{error or 'it hung up'}",
            hint="a host that hangs, a port that is not sshd's, or too many connections at once (MaxStartups)",
        ) from None
    known.check(Key(shown.get_name(), shown.asbytes()))
