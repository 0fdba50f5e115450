"""Sockets as the kernel tells them: states, addresses, and bytes that nobody reads."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest
from people import named, staying

from chaos.outpost.insides import inspect, sockets_of


def test_listening_and_connected_sockets_are_told_with_what_nobody_reads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, listener.accept()[0] as server:
            client.sendall(b"x" * 100)
            mine = client.getsockname()[1]
            deadline = time.monotonic() + 60
            wanted = f"ESTABLISHED 127.0.0.1:{port} -> 127.0.0.1:{mine} (100 bytes unread)"
            while wanted not in sockets_of(os.getpid()):
                assert time.monotonic() < deadline
            lines = sockets_of(os.getpid())
            assert server.recv(100)
    assert f"LISTEN 127.0.0.1:{port} -> -" in lines
    assert f"ESTABLISHED 127.0.0.1:{mine} -> 127.0.0.1:{port}" in lines


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_addresses_of_the_new_protocol_are_told_in_brackets() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("::1 cannot be bound here")
    with listener:
        assert f"LISTEN [::1]:{listener.getsockname()[1]} -> -" in sockets_of(os.getpid())


def test_sockets_in_another_network_namespace_are_found() -> None:
    code = (
        "import socket, subprocess, sys\nsubprocess.run(['ip', 'link', 'set', 'lo', 'up'])\n"
        "listener = socket.socket(); listener.bind(('0.0.0.0', 0)); listener.listen()\n"
        "print(listener.getsockname()[1], flush=True); sys.stdin.read()"
    )
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed")
    with subprocess.Popen(
        [unshare, "--net", sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        port = process.stdout.readline().strip()
        if not port:
            pytest.skip("network namespaces cannot be made here")
        assert [f"LISTEN 0.0.0.0:{port} -> -"] == sockets_of(process.pid)
        process.communicate()


def test_a_process_that_is_gone_raises() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(OSError, match="No such file"):
        sockets_of(process.pid)


def test_everything_that_is_known_of_a_process_is_told_secrets_and_all() -> None:
    with staying("--api-key", "sk-1", env={**os.environ, "HF_TOKEN": "hf-1"}) as process:
        (seen,) = inspect(*named(process.pid))
    assert (process.pid, "python", [sys.executable, "--api-key", "sk-1"]) == (
        seen["pid"],
        seen["name"],
        [seen["command"][0], *seen["command"][-2:]],
    )
    assert ("hf-1", 1, []) == (seen["environment"]["HF_TOKEN"], seen["os_threads"], seen["unreadable"])
    assert seen["memory_bytes"] > 1_000_000
    assert seen["open_files"] >= 3


def test_of_a_later_process_with_the_pid_nothing_is_told() -> None:
    pid, ticks = named(os.getpid())
    assert [] == inspect(pid, ticks - 1)


def test_a_process_without_an_environment_to_read_says_so() -> None:
    with staying(env={}) as process:
        (seen,) = inspect(*named(process.pid))
    assert ["environment"] == seen["unreadable"]
