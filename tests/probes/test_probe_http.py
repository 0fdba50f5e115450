"""The HTTP client: its fallback, its checks, and what its failures are called."""

from __future__ import annotations

import errno
import importlib.util
import ssl
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from probe_helpers import serving, text

from chaos.engine.probes import http as module
from chaos.engine.probes.http import TRANSPORT_ERRORS, _context, describe, make_http, transport_name
from chaos.model.errors import UsageError
from chaos.model.target import Tls

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def without_aiohttp(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is where `httpx-aiohttp` is not installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    spec = importlib.util.spec_from_file_location("http_without_aiohttp", module.__file__)
    plain = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "http_without_aiohttp", plain)
    spec.loader.exec_module(plain)
    return plain


async def test_without_the_fast_transport_plain_httpx_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = without_aiohttp(monkeypatch)
    assert ("httpx-aiohttp", "httpx") == (transport_name(), plain.transport_name())
    async with serving(health=text("here")) as url:
        for make in (make_http, plain.make_http):
            async with make() as http:
                assert "here" == (await http.get(url + "/health")).text


async def test_a_refused_connection_has_the_same_name_on_both_transports(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    plain = without_aiohttp(monkeypatch)
    for one in (module, plain):
        async with one.make_http() as http:
            with pytest.raises(one.TRANSPORT_ERRORS) as failure:
                await http.get(f"http://127.0.0.1:{unused_tcp_port}/")
            assert "refused" == one.describe(failure.value)[0]
    async with module.make_http() as http:
        with pytest.raises(TRANSPORT_ERRORS) as failure:
            await http.get(f"http://127.0.0.1:{unused_tcp_port}/")
    said = f"no connection to 127.0.0.1:{unused_tcp_port}"
    assert said == describe(failure.value)[1], "without the transport's own options"


async def test_a_name_that_does_not_exist_is_a_failure_to_connect() -> None:
    async with make_http() as http:
        with pytest.raises(TRANSPORT_ERRORS) as failure:
            await http.get("http://no-such-host.invalid/")
    code, said = describe(failure.value)
    assert ("connect", True) == (code, said.startswith("no connection to no-such-host.invalid:80 ("))
    assert "ssl:" not in said


async def test_each_request_has_a_connection_of_its_own_and_no_compression() -> None:
    from aiohttp import web

    peers, encodings = set(), set()

    async def who(request: web.Request) -> web.Response:
        peers.add(request.transport.get_extra_info("peername"))
        encodings.add(request.headers.get("accept-encoding"))
        return web.Response()

    async with serving(who=who) as url, make_http() as http:
        for _ in range(3):
            await http.get(url + "/who")
    assert (3, {"identity"}) == (len(peers), encodings)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), "reset"),
        (BrokenPipeError(errno.EPIPE, "pipe"), "reset"),
        (TimeoutError("late"), "timeout"),
        (httpx.RemoteProtocolError("what?"), "protocol"),
        (httpx.ReadError("odd"), "connect"),
        (ValueError("odd"), "protocol"),
    ],
)
def test_errors_have_the_names_that_events_use(error: Exception, code: str) -> None:
    assert code == describe(error)[0]


def test_an_error_that_is_its_own_cause_is_described_all_the_same() -> None:
    error = OSError("loop")
    error.__cause__ = error
    assert ("protocol", "loop") == describe(error)


def test_certificates_are_checked_unless_the_target_says_not_to(tmp_path: Path) -> None:
    assert ssl.CERT_REQUIRED == _context(None).verify_mode == _context(Tls()).verify_mode
    assert ssl.CERT_NONE == _context(Tls(verify=False)).verify_mode
    (tmp_path / "ca.pem").write_text("no certificate")
    for path in (tmp_path / "ca.pem", tmp_path / "gone.pem"):
        with pytest.raises(UsageError, match="certificate authority"):
            make_http(Tls(ca=str(path)))
