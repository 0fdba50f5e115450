"""A plain client for lab tests: raw sockets where a connection's life matters, httpx for the rest."""

from __future__ import annotations

import json
import re
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.lab.provider import RunningLab

RUN_ID = "run-of-the-lab-tests"  # of the lab that tests share
PATIENCE_S = 60.0  # for things that must come; a starved machine may take its time

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of `condition`; fails when none comes."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"never happened: {what}")


def body_for(path: str, prompt: str, tokens: int, *, stream: bool, **more: object) -> dict[str, object]:
    """A request body in the API of `path`."""
    if path == GENERATE:
        return {"text": prompt, "sampling_params": {"max_new_tokens": tokens}, "stream": stream, **more}
    asked = {"messages": [{"role": "user", "content": prompt}]} if path == CHAT else {"prompt": prompt}
    return {"model": "m", **asked, "max_tokens": tokens, "stream": stream, **more}


class Client:
    """One request on a socket of its own; `hang_up` closes it at once."""

    def __init__(self, url: str, path: str, body: dict[str, object]) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port))
        payload = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: lab\r\nContent-Length: {len(payload)}\r\n\r\n"
        self.socket.sendall(head.encode() + payload)
        self.received = b""

    def bytes_within(self, seconds: float) -> bytes:
        """Everything received so far, after waiting for more for at most `seconds`."""
        self.socket.settimeout(seconds)
        with suppress(TimeoutError):
            self.received += self.socket.recv(1 << 20)
        return self.received

    def has(self, wanted: bytes) -> bool:
        """Whether `wanted` has arrived by now."""
        return wanted in self.bytes_within(0.02)

    def hang_up(self) -> None:
        """Close; what a killed client's kernel does."""
        self.socket.close()


@dataclass
class Answer:
    """What a complete answer said."""

    status: int
    text: str = ""
    finish: str | None = None
    tokens: int | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False


def read_answer(path: str, reply: httpx.Response) -> Answer:
    """Interpret an answer of any of the three APIs, streamed or not."""
    answer = Answer(reply.status_code)
    if not reply.headers["content-type"].startswith("text/event-stream"):
        answer.events = [reply.json()]
    else:
        for line in filter(None, reply.text.split("\n")):
            assert line.startswith("data: ")
            if line == "data: [DONE]":
                answer.done = True
            else:
                answer.events.append(json.loads(line.removeprefix("data: ")))
    for event in answer.events:
        if "error" in event or event.get("object") == "error":
            continue
        if path == GENERATE:
            answer.text = event["text"]
            finish = event["meta_info"]["finish_reason"]
            answer.finish = finish["type"] if finish else None
            answer.tokens = event["meta_info"]["completion_tokens"]
            continue
        for choice in event["choices"]:
            message = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            answer.text += message.get("content") or ""
            answer.finish = choice["finish_reason"] or answer.finish
        if event.get("usage"):
            answer.tokens = event["usage"]["completion_tokens"]
    return answer


class Lab:
    """A running lab with short words for what tests do to it."""

    def __init__(self, running: RunningLab) -> None:
        self.running = running
        target = running.target
        self.router = target.router.url
        self.prefill = target.prefill[0].url
        self.decode = target.decode[0].url
        self.bootstrap_port = target.prefill[0].bootstrap_port
        self.router_metrics = target.router.metrics
        self.http = httpx.Client(timeout=PATIENCE_S)
        self._clients: list[Client] = []

    def close(self) -> None:
        for client in self._clients:
            client.hang_up()
        self.http.close()

    # ------------------------------------------------------------------ requests

    def ask(self, path: str, prompt: str = "hello world", tokens: int = 4, *, stream: bool = False, **more: object):
        """A whole request through the router."""
        body = body_for(path, prompt, tokens, stream=stream, **more)
        return read_answer(path, self.http.post(self.router + path, json=body))

    def client(
        self, path: str, prompt: str, tokens: int, *, stream: bool = True, url: str = "", **more: object
    ) -> Client:
        """A request that can be hung up."""
        client = Client(url or self.router, path, body_for(path, prompt, tokens, stream=stream, **more))
        self._clients.append(client)
        return client

    def clients(self, count: int, path: str = CHAT, tokens: int = 500) -> list[Client]:
        return [self.client(path, f"session {n} says hello", tokens) for n in range(count)]

    def kill_waiting(self, count: int, prompt: str = "session {n} says hello", *, streaming: int = 0) -> None:
        """Hang up on clients none of which has had a token, beside others, and wait until the engine has noticed."""
        before = self.metric(self.decode, "num_aborted_requests_total") or 0
        with self.transfer_held():
            clients = [self.client(CHAT, prompt.format(n=n), 500) for n in range(count)]
            wanted = (count + streaming, count)  # a stream is decode's alone
            eventually(lambda: wanted == (self.active(self.decode), self.active(self.prefill)), "all wait")
            for client in clients:
                client.hang_up()
            noticed = before + count
            eventually(lambda: noticed <= (self.metric(self.decode, "num_aborted_requests_total") or 0), "aborts")
            eventually(lambda: not self.active(self.prefill), "prefill has noticed, too")

    def hangs(self, *, url: str = "", room: int | None = None) -> bool:
        """Whether a fresh request (routed, or straight to the first pair) gets nothing for a while."""
        body = {} if room is None else self.pair(room)
        legs = [self.prefill, self.decode] if room is not None else [url or self.router]
        clients = [self.client(GENERATE, "are you there", 2, stream=False, url=leg, **body) for leg in legs]
        return not clients[-1].bytes_within(0.7)

    def pair(self, room: int) -> dict[str, object]:
        """Body fields by which both legs of a direct request meet."""
        return {"bootstrap_host": "127.0.0.1", "bootstrap_port": self.bootstrap_port, "bootstrap_room": room}

    def ask_pair(self, room: int, prompt: str = "hello", tokens: int = 3) -> Answer:
        """A whole request straight to the first pair."""
        self.client(GENERATE, prompt, tokens, stream=False, url=self.prefill, **self.pair(room))
        body = body_for(GENERATE, prompt, tokens, stream=False, **self.pair(room))
        return read_answer(GENERATE, self.http.post(self.decode + GENERATE, json=body))

    # ------------------------------------------------------------------ looking and holding

    def gates(self, url: str, **gates: str) -> None:
        assert httpx.codes.OK == self.http.post(f"{url}/_sim/gates", json=gates).status_code

    @contextmanager
    def transfer_held(self) -> Iterator[None]:
        self.gates(self.prefill, transfer="hold")
        try:
            yield
        finally:
            self.gates(self.prefill, transfer="open")

    def log(self, name: str) -> str:
        return (Path(self.running.folder) / f"{name}.log").read_text()

    def samples(self, url: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Every sample of a metrics page, by name and labels."""
        text = self.http.get(url if url.endswith("/metrics") else f"{url}/metrics").text
        families = text_string_to_metric_families(text)
        return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}

    def metric(self, url: str, name: str, **labels: str) -> float | None:
        """The sum over matching children; None when there is none."""
        found = [
            value
            for (sample, own), value in self.samples(url).items()
            if sample == f"sglang:{name}" and set(labels.items()) <= own
        ]
        return sum(found) if found else None

    def is_idle(self, url: str) -> bool:
        return httpx.codes.OK == self.http.post(f"{url}/flush_cache").status_code

    def until_idle(self) -> None:
        for url in (self.prefill, self.decode):
            eventually(lambda url=url: self.is_idle(url), f"{url} idle")

    def active(self, url: str) -> float:
        """Generation requests the HTTP process has open; live."""
        return sum(
            value
            for (name, labels), value in self.samples(url).items()
            if name == "sglang:http_requests_active" and dict(labels)["endpoint"] in (CHAT, COMPLETIONS, GENERATE)
        )


FATAL = re.compile(r"^Exception in thread Thread-\d+ \(bootstrap_thread\):$", re.MULTILINE)
