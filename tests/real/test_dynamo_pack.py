"""The packs against Dynamo itself: metrics as it exposes them, log lines as it writes them when it is hurt."""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import socket
import time
import urllib.request
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest
from dynamo_here import VERSION, installer
from prometheus_client.parser import text_string_to_metric_families
from wheel import pieces, words_of

from chaos import library
from chaos.lab.provider import parse_lab, start_lab

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.model.pack import Signature
    from chaos.model.target import ServerSpec

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

WORKER, FRONTEND = library.load_pack("dynamo").value, library.load_pack("dynamo-frontend").value
SIGNATURES = [pytest.param(signature, id=signature.id) for pack in (WORKER, FRONTEND) for signature in pack.signatures]
SEEN_HERE = {
    "answer-unwanted",
    "client-gone",
    "forgotten-by-discovery",
    "frontend-started",
    "stream-lost",
    "worker-does-not-take",
    "worker-started",
}
"""What clients that go away, a worker that dies and one that is frozen for too long bring about for certain."""
FROZEN_S = 20.0  # the lease of 10 s, and as long again until everybody has noticed
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


# ---------------------------------------------------------------------------------------------- what it contains


@pytest.fixture(scope="module")
def code():
    """Its machine code, in which every message is, and the text in its Python sources."""
    folder = installer().version(VERSION).folder / "dynamo"
    with (
        next(folder.rglob("_core*.so")).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as all_,
    ):
        yield all_, words_of(folder)


@pytest.mark.parametrize("signature", SIGNATURES)
def test_every_log_line_of_the_pack_is_in_the_program(code, signature: Signature):
    compiled, words = code

    def known(text: str) -> bool:
        message = text.rpartition(" ")[0]  # a message is followed by the name of its first field, as in `failed error=`
        return any(each and (compiled.find(each.encode()) >= 0 or each in words) for each in (text, message))

    assert [] == [anyone for anyone in pieces(signature.pattern) if not any(map(known, anyone))]


# ---------------------------------------------------------------------------------------------- what it says


class Hurt:
    """Two pairs that served, lost their clients, lost a worker, and had another one frozen past its lease."""

    def __init__(self, folder: Path) -> None:
        spec = parse_lab(f"dynamo@{VERSION}", {"prefill": "2", "decode": "2"})
        with start_lab(spec, folder, print) as lab:
            self.target = lab.target
            host, _, port = self.target.router.url.removeprefix("http://").partition(":")
            self._router = (host, int(port))
            with ExitStack() as clients:
                self._stream(clients, 40, tokens=1500)
                time.sleep(2.0)
            time.sleep(1.0)
            self.expositions = {
                "router": scrape(self.target.router),
                "prefill": scrape(self.target.prefill[0]),
                "decode": scrape(self.target.decode[0]),
            }
            self.models = get(self.target.router, "/v1/models")
            self.health = [get(server, path) for server, path in self._liveness()]
            with ExitStack() as clients:
                self._stream(clients, 20, tokens=1500)
                time.sleep(1.5)
                os.kill(lab.pids[4], signal.SIGKILL)
                time.sleep(1.0)
            lab.restart("decode-1")
            frozen = lab.pids[3]
            with ExitStack() as clients:
                self._stream(clients, 4, tokens=6000)
                time.sleep(1.0)
                os.kill(frozen, signal.SIGSTOP)
                self._stream(clients, 4, tokens=20)
                time.sleep(FROZEN_S)
                os.kill(frozen, signal.SIGCONT)
                time.sleep(5.0)
            self.health_after = [get(server, path) for server, path in self._liveness()]
            self.lines = {path.stem: path.read_text().splitlines() for path in folder.glob("*.log")}

    def _liveness(self) -> list[tuple[ServerSpec, str]]:
        workers = (*self.target.prefill, *self.target.decode)
        return [
            *((self.target.router, path) for path in FRONTEND.endpoints.liveness),
            *((worker, path) for worker in workers for path in WORKER.endpoints.liveness),
        ]

    def _stream(self, clients: ExitStack, number: int, *, tokens: int) -> None:
        for n in range(number):
            asked = {
                "model": self.target.model,
                "messages": [{"role": "user", "content": f"{n} " + "word " * 200}],
                "max_tokens": tokens,
                "ignore_eos": True,
                "stream": True,
            }
            body = json.dumps(asked).encode()
            client = clients.enter_context(socket.create_connection(self._router, timeout=30))
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: lab\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )


def get(server: ServerSpec, path: str) -> tuple[int, bytes]:
    with suppress(urllib.error.HTTPError), NO_PROXY.open(server.url + path, timeout=10) as answer:
        return answer.status, answer.read()
    return 0, b""


def scrape(server: ServerSpec) -> list[tuple[str, dict[str, str]]]:
    text = get(server, "/metrics")[1].decode()
    return [
        (sample.name, sample.labels) for family in text_string_to_metric_families(text) for sample in family.samples
    ]


@pytest.fixture(scope="module")
def hurt(tmp_path_factory) -> Hurt:
    installer()
    return Hurt(tmp_path_factory.mktemp("dynamo"))


def test_every_metric_of_the_packs_is_exposed_by_the_roles_it_is_said_of(hurt: Hurt):
    absent = [
        (metric.name, role)
        for pack in (WORKER, FRONTEND)
        for metric in pack.metrics
        for role in metric.roles
        if "Absent until the first" not in metric.note or metric.name == "frontend_cancelled"
        if not any(
            name in metric.exposed_as(VERSION) and metric.where.items() <= labels.items()
            for name, labels in hurt.expositions[role]
        )
    ]
    assert [] == absent


def test_the_endpoints_are_there(hurt: Hurt):
    assert {200} == {status for status, _ in (*hurt.health, hurt.models)}
    assert b"pdchaos-tiny" in hurt.models[1]


def test_health_stays_green_when_discovery_has_forgotten_a_worker(hurt: Hurt):
    assert {200} == {status for status, _ in hurt.health_after}


def test_what_it_wrote_when_it_was_hurt_has_the_meaning_that_the_packs_say(hurt: Hurt):
    assert set() == SEEN_HERE - {signature.id for signature, _ in met(hurt)}


def test_aborted_requests_can_be_told_apart_in_the_frontends_log(hurt: Hurt):
    keys = {match["request"] for signature, match in met(hurt) if signature.id == "client-gone"}
    assert 40 <= len(keys)


def test_a_quiet_start_means_nothing_but_that_it_started(tmp_path):
    installer()
    with start_lab(parse_lab(f"dynamo@{VERSION}", {}), tmp_path, print):
        pass
    lines = {path.stem: path.read_text().splitlines() for path in tmp_path.glob("*.log")}
    classes = {signature.klass for signature, _ in meanings(lines)}
    assert {"restart"} == classes


def met(hurt: Hurt) -> list[tuple[Signature, re.Match[str]]]:
    return meanings(hurt.lines)


def meanings(lines: dict[str, list[str]]) -> list[tuple[Signature, re.Match[str]]]:
    """The first signature that matches each line, as the scanner does it."""
    found = []
    for node, written in lines.items():
        role = node.partition("-")[0]
        pack = FRONTEND if role == "router" else WORKER
        for line in written:
            for signature in pack.signatures:
                match = re.search(signature.pattern, line) if role in signature.roles else None
                if match:
                    found.append((signature, match))
                    break
    return found
