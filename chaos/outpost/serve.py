"""The outpost's loop: requests in on stdin, answers out on stdout, one JSON object a line.

In: `{"id": 7, "op": NAME, "args": {…}}`, `{"id": 8, "stream": NAME, "args": {…}}`, `{"id": 8, "stop": true}`; ids count
from 1. Out, after the greeting (`__main__`): `{"id": 7, "ok": value}` or `{"id": 7, "kind": …, "err": …}`; of a stream
`{"id": 8, "d": value}` any number of times, then `{"id": 8, "end": ""}` or kind and err. A long value comes as `{"id":
7, "part": TEXT}` before its line, which then has `"whole": "ok"` or `"d"` in its place: the parts joined are its JSON.

Each request has a thread; `now` is answered at once, because clocks are compared by it. The end of stdin, silence for
a minute, SIGTERM and SIGHUP end it: streams are stopped, and whatever holds a pipe to us learns that we are gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from chaos.outpost import locks, ourselves
from chaos.outpost.ops import OPS, STREAMS, now
from chaos.outpost.pen import PROMPT, Pen
from chaos.outpost.trouble import Trouble

SILENCE_S = 60.0
"""We are asked something every few seconds; whoever asks nothing for so long is gone."""
PART_BYTES = 1 << 16
ENDING_S = 3.0
"""How long streams may take to end what they started."""


class _Outpost:
    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._streams: dict[int, threading.Event] = {}
        self._threads: list[threading.Thread] = []  # of streams

    def take(self, line: bytes) -> None:
        """Carry out one request, or begin to."""
        request = json.loads(line)
        number = request["id"]
        if request.get("stop"):
            stopped = self._streams.get(number)
            if stopped is not None:
                stopped.set()
        elif request.get("op") == "now":
            self._pen.write(PROMPT, [_line({"id": number, "ok": now()})])
        else:
            work = self._stream if "stream" in request else self._call
            if "stream" in request:
                self._streams[number] = threading.Event()
            thread = threading.Thread(target=work, args=(number, request), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads for this user
                self._streams.pop(number, None)
                self._pen.write(number, [_line({"id": number, "kind": "busy", "err": str(error)})])
                return
            if "stream" in request:
                self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _call(self, number: int, request: dict[str, Any]) -> None:
        try:
            lines = _told(number, "ok", _named(OPS, request["op"])(**request.get("args", {})))
        except BaseException as error:  # noqa: BLE001 - its caller is told
            lines = [_line({"id": number, **_said(error)})]
        self._write(number, lines)

    def _stream(self, number: int, request: dict[str, Any]) -> None:
        stopped = self._streams[number]

        def send(value: Any) -> None:
            try:
                self._pen.write(number, _told(number, "d", value))
            except BrokenPipeError:
                stopped.set()

        try:
            _named(STREAMS, request["stream"])(send, stopped, **request.get("args", {}))
            last: dict[str, Any] = {"end": ""}
        except BaseException as error:  # noqa: BLE001 - its reader is told
            last = _said(error)
        del self._streams[number]
        self._write(number, [_line({"id": number, **last})])

    def _write(self, number: int, lines: list[bytes]) -> None:
        with suppress(BrokenPipeError):  # nobody is there any more
            self._pen.write(number, lines)

    def end(self) -> None:
        """Stop what runs, and give it a moment to let go."""
        for stopped in list(self._streams.values()):
            stopped.set()
        deadline = time.monotonic() + ENDING_S
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
        self._pen.flush(max(deadline - time.monotonic(), 0))


def main() -> int:
    """Serve until nobody is there any more."""
    ourselves.keep_private()
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # no child of ours reads our requests,
    os.dup2(2, 1)  # nor does any print write among our answers
    os.close(nothing)
    over = _Over()
    outpost = _Outpost(Pen(answers, over.tell))
    with suppress(BrokenPipeError):
        _listen(requests, over, outpost)
    outpost.end()
    locks.give_back()  # `_exit` runs nothing that was to be done at the end
    sys.stderr.flush()
    os._exit(0)  # a thread in a call that does not return keeps nobody here


class _Over:
    """A descriptor that can be read once somebody, a signal for one, wants us to end.

    A handler that raised would do so anywhere, also while a lock is being taken.
    """

    def __init__(self) -> None:
        self.told, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's, and not meant for us
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)

    def tell(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._tell, b"!")


def _listen(requests: int, over: _Over, outpost: _Outpost) -> None:
    rest = b""
    while ready := select.select([requests, over.told], [], [], SILENCE_S)[0]:
        if over.told in ready:
            return
        data = os.read(requests, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line:
                outpost.take(line)


def _named(offered: dict[str, Any], name: str) -> Any:
    if name not in offered:
        raise Trouble("unknown", f"{name} is nothing that this version does")
    return offered[name]


def _told(number: int, key: str, value: Any) -> list[bytes]:
    text = json.dumps(value)
    if len(text) <= PART_BYTES:
        return [b'{"id": %d, "%s": %s}\n' % (number, key.encode(), text.encode())]
    parts = [text[at : at + PART_BYTES] for at in range(0, len(text), PART_BYTES)]
    return [*(_line({"id": number, "part": part}) for part in parts), _line({"id": number, "whole": key})]


def _said(error: BaseException) -> dict[str, str]:
    if isinstance(error, Trouble):
        return {"kind": error.kind, "err": error.text}
    return {"kind": "defect", "err": f"{type(error).__name__}: {error}"[:1000]}


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
