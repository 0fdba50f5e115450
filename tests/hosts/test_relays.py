"""Requests through relays: to the right server, as seen from its host, and what is told when the way breaks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import stat
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import httpx
import pytest
from sshd import Sshd, needs_sshd
from ways import Elsewhere, open_relays, target_at, until

from chaos.engine.hosts import HostLost, Hosts
from chaos.engine.hosts.relays import Relays
from chaos.engine.probes.http import TRANSPORT_ERRORS, describe, make_http
from chaos.model.target import Tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def answering(who: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that says who it is; `/slow` says half of it. Its port, and the heads of requests."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head)
                body = who.encode()
                length = len(body) + (5 if b"/slow" in head else 0)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (length, body))
                await writer.drain()
                if b"/slow" in head:
                    await reader.read(1)
        finally:  # also when the test is over before it has seen its client leave
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()


def certificate(folder: Path, name: str) -> Path:
    """A certificate for a name, with its key."""
    file = folder / f"{name}.pem"
    made = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run(
        ["openssl", "req", *made, *names, "-keyout", str(file), "-out", f"{file}.cert"], check=True, capture_output=True
    )
    file.write_bytes(file.read_bytes() + Path(f"{file}.cert").read_bytes())
    return file


@contextlib.asynccontextmanager
async def opened(relays: Relays, tls: Tls | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client that asks through them; closed with them."""
    try:
        async with make_http(tls, relays) as http:
            yield http
    finally:
        await asyncio.to_thread(relays.close)


async def test_servers_of_one_address_on_two_hosts_are_told_apart_and_local_ones_asked_directly() -> None:
    async with answering("there") as (port, heads):
        url = f"http://127.0.0.1:{port}"
        target = target_at("tunnel", url, url, url)
        relays = await asyncio.to_thread(open_relays, target, Elsewhere(), at=("router-0", "prefill-0"))
        assert url == relays.url("decode-0", url)
        assert relays.url("router-0", url) == relays.url("prefill-0", url) != url
        assert f"{relays.url('router', url)}/v1/models" == relays.url("router", f"{url}/v1/models")
        async with opened(relays) as http:
            for server in ("router-0", "decode-0"):
                assert "there" == (await http.get(relays.url(server, url) + "/who?x=%20y")).text
    assert [f"Host: 127.0.0.1:{port}".lower()] * 2 == [
        line.decode().lower() for head in heads for line in head.split(b"\r\n") if line.lower().startswith(b"host:")
    ]
    assert {b"GET /who?x=%20y HTTP/1.1"} == {head.split(b"\r\n")[0] for head in heads}


async def test_metrics_and_bootstrap_addresses_have_doors_of_their_own() -> None:
    async with answering("metrics") as (metrics, _), answering("bootstrap") as (bootstrap, _):
        url = "http://127.0.0.1:9"
        spec = {"metrics": f"http://127.0.0.1:{metrics}/m", "bootstrap_port": bootstrap}
        relays = await asyncio.to_thread(open_relays, target_at("remote", url, url, url, **spec), Elsewhere())
        async with opened(relays) as http:
            assert "metrics" == (await http.get(relays.url("prefill-0", spec["metrics"]))).text
            assert "bootstrap" == (await http.get(relays.url("prefill-0", f"http://127.0.0.1:{bootstrap}/route"))).text
        assert relays.clients is None  # the load is there


async def test_tls_is_held_to_the_name_in_the_url(tmp_path: Path) -> None:
    for name, fine in (("localhost", True), ("elsewhere.test", False)):
        pem = certificate(tmp_path, name)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        async with answering("secret", context) as (port, _):
            url = f"https://localhost:{port}"
            relays = await asyncio.to_thread(open_relays, target_at("tunnel", url, url, url), Elsewhere())
            async with opened(relays, Tls(ca=str(pem))) as http:
                if fine:
                    assert "secret" == (await http.get(relays.url("router-0", url))).text
                else:
                    with pytest.raises(httpx.HTTPError, match=r"(?i)certificate"):
                        await http.get(relays.url("router-0", url))


async def test_a_port_that_refuses_there_is_told_as_refused() -> None:
    async with answering("gone") as (port, _):
        url = f"http://127.0.0.1:{port}"
    relays = await asyncio.to_thread(open_relays, target_at("tunnel", url, url, url), Elsewhere())
    async with opened(relays) as http:
        with pytest.raises(TRANSPORT_ERRORS) as failed:
            await http.get(relays.url("router-0", url))
    assert "refused" == describe(failed.value)[0]


@pytest.mark.parametrize("path", ["/slow", "/"])
async def test_a_way_that_breaks_is_our_own_and_comes_back(path: str) -> None:
    elsewhere = Elsewhere()
    async with answering("half") as (port, _):
        url = f"http://127.0.0.1:{port}"
        relays = await asyncio.to_thread(open_relays, target_at("tunnel", url, url, url), elsewhere)
        async with opened(relays) as http:
            asked = relays.url("router-0", url)
            if path == "/slow":
                async with http.stream("GET", asked + path) as response:
                    elsewhere.cut()
                    with pytest.raises(TRANSPORT_ERRORS) as failed:
                        await response.aread()
            else:
                elsewhere.cut()
                await asyncio.to_thread(until, lambda: next(iter(relays._relays)).broke(0, 1 << 63))
                with pytest.raises(TRANSPORT_ERRORS) as failed:
                    await http.get(asked + path)  # it takes half a second and more until it is back
            assert "way" == describe(failed.value)[0]
            assert relays.broke(asked, 0, 1 << 63)
            await asyncio.to_thread(until, lambda: len(elsewhere.ends) == 2 and next(iter(relays._relays)).up)
            assert {("router-0", True), ("prefill-0", True), ("decode-0", True)} == {
                (server, gap.broke) for server, gap in relays.gaps()
            }
            assert "half" == (await http.get(asked)).text


async def test_what_the_server_does_is_not_taken_for_ours() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    relays = await asyncio.to_thread(open_relays, target_at("tunnel", url, url, url), Elsewhere())
    async with opened(relays) as http:
        with pytest.raises(TRANSPORT_ERRORS) as failed:
            await http.get(relays.url("router-0", url))
    server.close()
    assert "reset" == describe(failed.value)[0]


async def test_silence_of_the_far_end_is_told_once_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.engine.hosts.relay.STALL_S", 0.3)
    elsewhere, url = Elsewhere(), "http://127.0.0.1:9"
    relays = await asyncio.to_thread(open_relays, target_at("tunnel", url, url, url), elsewhere)
    async with opened(relays):
        os.kill(elsewhere.ends[0].process.pid, signal.SIGSTOP)
        await asyncio.sleep(1.6)
        os.kill(elsewhere.ends[0].process.pid, signal.SIGCONT)
        for _ in range(3000):
            told = [gap for _, gap in relays.gaps() if gap.to_ns - gap.from_ns > 1.3e9]
            if told:
                break
            await asyncio.sleep(0.02)
    assert {False} == {gap.broke for gap in told}


async def test_a_way_that_is_gone_for_good_is_told_of_up_to_the_end() -> None:
    def lost() -> NoReturn:
        raise HostLost("gone for good")

    elsewhere, url = Elsewhere(), "http://127.0.0.1:9"
    relays = await asyncio.to_thread(open_relays, target_at("tunnel", url, url, url), elsewhere)
    async with opened(relays):
        (relay,) = relays._relays
        relay._dial = lost
        elsewhere.cut()
        await asyncio.to_thread(until, lambda: relay.broke(0, 1 << 63))
        relays.gaps()
        relay._heard_ns -= 10**10  # as if ten seconds had gone by
        assert [] == relays.gaps()
        before_ns = time.monotonic_ns()
        (gap,) = {gap for _, gap in relays.gaps(last=True)}
        assert gap.broke
        assert gap.to_ns >= before_ns
        assert gap.to_ns - gap.from_ns >= 10**10


@pytest.mark.usefixtures("nothing_left")
def test_doors_are_private_and_nothing_is_left() -> None:
    url, elsewhere = "http://127.0.0.1:9", Elsewhere()
    relays = open_relays(target_at("tunnel", url, url, url), elsewhere)
    folder, relay = Path(relays._folder), next(iter(relays._relays))
    assert 0o700 == stat.S_IMODE(folder.stat().st_mode)
    assert relays.clients is not None
    assert Path(relays.clients.door.path).is_socket()
    assert relay._way is not None
    process = relay._way._process
    relays.close()
    assert not folder.exists()
    assert process.returncode is not None
    assert elsewhere.ends[0].process.returncode is not None


@needs_sshd
async def test_over_ssh_requests_reach_what_the_host_reaches_and_a_cut_connection_comes_back(sshd: Sshd) -> None:
    async with answering("there") as (port, _):
        url = f"http://127.0.0.1:{port}"
        target = target_at("tunnel", url, url, url).model_copy(update={"ssh": sshd.ssh()})
        hosts = await asyncio.to_thread(Hosts.open, target, lambda _said: None, run="a1b2c3d4")
        try:
            relays = await asyncio.to_thread(Relays.open, target, hosts, run="a1b2c3d4")
            async with opened(relays) as http:
                asked, relay = relays.url("router-0", url), next(iter(relays._relays))
                assert ["there"] * 20 == [
                    one.text for one in await asyncio.gather(*(http.get(asked) for _ in range(20)))
                ]
                sshd.kill()
                await asyncio.to_thread(until, lambda: not relay.up)
                with pytest.raises(TRANSPORT_ERRORS) as failed:
                    await http.get(asked)
                assert "way" == describe(failed.value)[0]
                sshd.start()
                await asyncio.to_thread(until, lambda: relay.up, 60.0)
                assert "there" == (await http.get(asked)).text
        finally:
            await asyncio.to_thread(hosts.close)
