"""The pack against the engine itself: every log line, metric and label it relies on is what the wheel really says."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sglang_here import VERSIONS, installer_with
from wheel import missing, pieces, words_of

from chaos import library
from chaos.lab.provider import parse_lab, start_lab
from chaos.model.versions import in_range

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

PACK = library.load_pack("sglang").value

ELSEWHERE = {
    "bootstrap-thread-excepthook": "threading.excepthook of Python",
    "decode-thread-excepthook": "threading.excepthook of Python",
    "thread-excepthook": "threading.excepthook of Python",
    "nccl-watchdog": "PyTorch, in C++",
    "cpp-terminate": "the C++ runtime",
    "fatal-python-error": "the Python interpreter",
    "cuda-out-of-memory": "PyTorch, in C++",
}
"""Signatures of lines that SGLang's processes print and SGLang's source does not hold."""

ONLY_IN_SOURCE = {
    "transfer_failed": "counted when a request is aborted in the instant of its transfer",
    "deferred_kv_releases": "of rooms whose acknowledgement is late",
    "retracted_requests": "",
}
"""Metrics that a short load does not bring about; their names are looked for in the source."""


def source(version: str) -> str:
    return words_of(installer_with(version).version(version).folder / "sglang" / "srt")


# ---------------------------------------------------------------------------------------------- log lines


@pytest.mark.parametrize("version", VERSIONS)
def test_every_log_line_of_the_pack_is_in_the_source_of_the_versions_it_is_said_of(version):
    words = source(version)
    wrong = {}
    for signature in PACK.signatures:
        lacks = missing(signature.pattern, words)
        if signature.id in ELSEWHERE:
            assert lacks, f"{signature.id} is in the source after all: {ELSEWHERE[signature.id]}?"
        elif in_range(version, since=signature.since, until="") and lacks:
            wrong[signature.id] = lacks
    assert {} == wrong


@pytest.mark.parametrize("version", VERSIONS)
def test_no_log_line_is_older_than_the_pack_says(version):
    words = source(version)
    told = {
        signature.id
        for signature in PACK.signatures
        if not in_range(version, since=signature.since, until="") and not missing(signature.pattern, words)
    }
    assert set() == told


def test_every_pattern_has_fixed_text_to_look_for():
    assert [] == [signature.id for signature in PACK.signatures if not pieces(signature.pattern)]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_thread_of_the_pack_is_started_by_a_function_of_that_name(version):
    assert [] == [thread.name for thread in PACK.threads if thread.name not in source(version).splitlines()]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_engines_timeouts_are_read_from_the_variables_that_the_pack_names(version):
    text = (installer_with(version).version(version).folder / "sglang" / "srt" / "environ.py").read_text()
    for timeout in PACK.timeouts:
        assert f"{timeout.env} = EnvInt({timeout.default:g})" in text


# ---------------------------------------------------------------------------------------------- metrics


@pytest.fixture(scope="module", params=VERSIONS)
def spoken(request, tmp_path_factory):
    """(version, exposition by role) of a pair that served, was overcommitted, and lost its clients."""
    version = request.param
    installer_with(version)
    spec = parse_lab(f"sglang@{version}", {"kv_tokens": "4096"})
    with start_lab(spec, tmp_path_factory.mktemp("sglang"), print) as lab:
        overcommit_and_hang_up(lab.target.router.url)
        nodes = {"prefill": lab.target.prefill[0], "decode": lab.target.decode[0]}
        yield version, {role: scrape(node.url) for role, node in nodes.items()}


def overcommit_and_hang_up(url: str) -> None:
    """Forty streams for a pool that holds four: the others wait and are aborted as they wait."""
    host, _, port = url.removeprefix("http://").partition(":")
    with ExitStack() as clients:
        for number in range(40):
            body = json.dumps(
                {
                    "text": f"{number} " + "word " * 200,
                    "sampling_params": {"max_new_tokens": 400, "ignore_eos": True},
                    "stream": True,
                }
            ).encode()
            client = clients.enter_context(socket.create_connection((host, int(port)), timeout=30))
            client.sendall(
                b"POST /generate HTTP/1.1\r\nHost: lab\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
        time.sleep(6)  # some stream, most wait
    time.sleep(8)  # disconnects are noticed 2 to 4 s late


def scrape(url: str) -> list[tuple[str, dict[str, str]]]:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return [
        (sample.name, sample.labels) for family in text_string_to_metric_families(text) for sample in family.samples
    ]


def test_every_metric_of_the_pack_is_exposed_by_the_roles_it_is_said_of(spoken):
    version, expositions = spoken
    absent = []
    for metric in PACK.metrics:
        names = metric.exposed_as(version)
        for role in metric.roles:
            if not names or metric.name in ONLY_IN_SOURCE:
                continue
            if not any(name in names and metric.where.items() <= labels.items() for name, labels in expositions[role]):
                absent.append((metric.name, role, names))
    assert [] == absent


def test_metrics_that_a_short_load_does_not_show_are_in_the_source(spoken):
    version, _ = spoken
    for metric in PACK.metrics:
        if metric.name in ONLY_IN_SOURCE:
            for name in metric.exposed_as(version):
                assert name.removesuffix("_total") in source(version)
