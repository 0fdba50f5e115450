"""The outpost's loop, as a process: what it answers, in which order, and how it ends."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import select
import signal
import subprocess
import sys
import termios
import time
from typing import IO, TYPE_CHECKING, Any

import pytest
from people import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PREPARED = """
import os, sys, subprocess, time
from chaos.outpost import ops, serve
from chaos.outpost.trouble import Trouble

def refuse(): raise Trouble("denied", "not for you")
def prints():
    print("to stdout")
    os.write(1, b"raw")
    return subprocess.run(["cat"], stdout=subprocess.PIPE, check=True).stdout.decode()  # which would eat our requests
def odd(): return {1, 2}
def lingers(send, stopped):
    send("here")
    stopped.wait()
    open(sys.argv[1], "w").write("let go")
def floods(send, stopped):
    while not stopped.is_set():
        send("x" * 1000)

ops.OPS.update(refuse=refuse, prints=prints, odd=odd)
ops.STREAMS.update(lingers=lingers, floods=floods)
"""


class Outpost:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    def say(self, *requests: dict[str, Any]) -> None:
        self._in.write(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
        self._in.flush()

    def hear(self) -> dict[str, Any]:
        line = self._out.readline()
        assert line.endswith(b"\n"), line
        return json.loads(line)

    def ask(self, number: int, **request: Any) -> dict[str, Any]:
        self.say({"id": number, **request})
        answer = self.hear()
        assert number == answer.pop("id")
        return answer

    def hang_up(self) -> None:
        self._in.close()


@pytest.fixture
def outpost(tmp_path) -> Iterator[Callable[..., Outpost]]:
    begun: list[subprocess.Popen[bytes]] = []

    def begin(prepare: str = "") -> Outpost:
        code = f"{PREPARED}\n{prepare}\nserve.main()"
        command = [sys.executable, "-c", code, str(tmp_path / "told")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        begun.append(process)
        return Outpost(process)

    yield begin
    for process in begun:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()
        process.wait()


def test_each_request_is_answered_by_its_number(outpost) -> None:
    one = outpost()
    assert {"ok": "xx"} == one.ask(7, op="filler", args={"size": 2})
    assert {"kind": "denied", "err": "not for you"} == one.ask(8, op="refuse")
    assert {"kind": "unknown", "err": "fly is nothing that this version does"} == one.ask(9, op="fly")
    assert "defect" == one.ask(10, op="odd")["kind"]  # no JSON
    assert {"mono_ns", "wall_ns", "tz_s"} == one.ask(11, op="now")["ok"].keys()
    one.say({"id": 12, "stream": "ticks", "args": {"count": 2, "every_s": 0}})
    assert [{"id": 12, "d": 0}, {"id": 12, "d": 1}, {"id": 12, "end": ""}] == [one.hear() for _ in range(3)]


def test_what_an_operation_prints_or_its_child_reads_is_none_of_our_traffic(outpost) -> None:
    one = outpost()
    assert {"ok": ""} == one.ask(1, op="prints")
    assert {"ok": "x"} == one.ask(2, op="filler", args={"size": 1})
    one.hang_up()
    assert b"raw" in one.process.stderr.read()


def test_a_long_answer_comes_in_parts_that_join(outpost) -> None:
    one = outpost()
    one.say({"id": 3, "op": "filler", "args": {"size": 200_000}})
    parts = []
    while "part" in (message := one.hear()):
        parts.append(message["part"])
    assert {"id": 3, "whole": "ok"} == message
    assert len(parts) > 2
    assert "x" * 200_000 == json.loads("".join(parts))


def _held(pipe: IO[bytes]) -> int:
    """Bytes in it that nobody has read."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return count[0]


def test_a_ping_overtakes_what_nobody_reads_yet(outpost) -> None:
    one = outpost()
    one.say({"id": 1, "stream": "floods"}, {"id": 2, "op": "filler", "args": {"size": 5_000_000}})
    until(lambda: _held(one.process.stdout) > 60_000)
    time.sleep(0.3)  # lines wait in both lanes
    one.say({"id": 3, "op": "now"})
    until(lambda: _held(one.process.stdin) == 0)
    time.sleep(0.3)  # it was answered
    before = 0
    while (message := one.hear())["id"] != 3:
        before += len(json.dumps(message))
    assert before < 1_000_000  # what the pipe held, and a line that was begun
    one.say({"id": 1, "stop": True})
    while "end" not in (message := one.hear()):
        pass
    assert 1 == message["id"]


@pytest.mark.parametrize("how", ["eof", "SIGTERM", "SIGHUP", "silence"])
def test_it_ends_when_nobody_is_there_any_more_and_lets_go_first(outpost, tmp_path, how: str) -> None:
    one = outpost("ops.OPS['hush'] = lambda: setattr(serve, 'SILENCE_S', 0.3)")
    if how == "silence":
        one.ask(0, op="hush")  # from the next request on
    one.say({"id": 1, "stream": "lingers"})
    assert "here" == one.hear()["d"]
    if how == "eof":
        one.hang_up()
    elif how != "silence":
        one.process.send_signal(getattr(signal, how))
    assert 0 == one.process.wait(30)
    assert "let go" == (tmp_path / "told").read_text()


def test_a_call_that_does_not_return_keeps_nobody(outpost) -> None:
    one = outpost("ops.OPS['hang'] = lambda: time.sleep(3600)")
    one.say({"id": 1, "op": "hang"})
    one.hang_up()
    assert 0 == one.process.wait(30)


def test_a_reader_that_is_gone_ends_it(outpost) -> None:
    one = outpost()
    one.process.stdout.close()
    one.say({"id": 1, "stream": "floods"}, {"id": 2, "op": "now"})
    time.sleep(0.2)
    with contextlib.suppress(BrokenPipeError):
        one.say({"id": 3, "op": "now"})
    assert 0 == one.process.wait(30)


def test_a_terminals_ctrl_c_is_not_meant_for_it(outpost) -> None:
    one = outpost()
    one.ask(1, op="now")
    one.process.send_signal(signal.SIGINT)
    assert one.ask(2, op="now")
    assert not select.select([one.process.stderr], [], [], 0)[0]
