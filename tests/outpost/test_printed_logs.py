"""Logs that a command prints: services of the host and any other command, resumed, restarted, ended for certain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from people import until
from services import Services

from chaos.outpost import follow, history, printed, proc, recent, wraps
from chaos.outpost.budget import Budget
from chaos.outpost.logs import OPS, probe
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KNOWN = {"n": [[r"^(?:\[.*\] )?thread-\d+ died", "", "thread-"]]}
SOON_S = 60.0


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    found = Services(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return found


def stamp(after_s: float = 0.0) -> str:
    """A stamp as services write them, so long after now."""
    return f"{datetime.now(UTC) + timedelta(seconds=after_s):%Y-%m-%dT%H:%M:%S.%f}000Z"


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PAUSE_S", 0.1)  # nothing of the past waits for the disk here


class Listener:
    """Whoever follows: what it heard, and from where it goes on."""

    def __init__(self, kind: str, what: str, cursors: dict[str, Any] | None = None) -> None:
        self.source = {"node": "n", "kind": kind, "what": what, "cursors": cursors or {}}
        self.follower = follow.Follower([self.source], KNOWN, Budget(), "r1")
        self.heard: list[dict[str, Any]] = []

    def until(self, done: Callable[[], object]) -> None:
        """Look until something is heard."""
        deadline = time.monotonic() + SOON_S
        while not done():
            assert time.monotonic() < deadline, self.heard
            self.heard += self.follower.turn()
            time.sleep(0.002)

    def finish(self) -> None:
        self.heard += self.follower.finish(lambda: False)
        self.follower.close()

    @property
    def lines(self) -> list[str]:
        return [hit[1].rpartition("] ")[2] for message in self.heard for hit in message.get("hits", ())]

    @property
    def cursors(self) -> dict[str, Any]:
        return {str(m["text"]): m["cursor"] for m in self.heard if "cursor" in m}

    def of(self, key: str) -> list[str]:
        return [message[key] for message in self.heard if message.get(key)]


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def make(*args: Any) -> Listener:
        made.append(Listener(*args))
        return made[-1]

    yield make
    for one in made:
        one.follower.close()


Listen = "Callable[..., Listener]"
KINDS = [
    ("journald", "sglang-prefill", "journalctl"),
    ("docker", "prefill-0", "docker"),
    ("kubectl", "-n llm x", "kubectl"),
]


@pytest.mark.parametrize(("kind", "what", "tool"), KINDS)
def test_a_service_is_asked_for_what_comes_after_a_moment_and_read_without_what_it_puts_before_each_line(
    kind: str, what: str, tool: str, services: Services, listen: Listen
) -> None:
    services.tell(tool, stamp(-60), "thread-0 died")
    (look,) = probe([{"kind": kind, "what": what}])
    assert "" == look["why"]
    services.tell(tool, stamp(), "[2026-06-27 10:16:12 TP0] fine")
    written = stamp()
    services.tell(tool, written, "thread-1 died")
    listener = listen(kind, what, look["cursors"])
    listener.until(lambda: listener.lines)
    listener.finish()
    assert ["thread-1 died"] == listener.lines
    (hit,) = [hit for message in listener.heard for hit in message.get("hits", ())]
    assert (written[:26], True) == (hit[4][:26], hit[5])
    assert [] == [*listener.of("gap"), *listener.of("blind")]


JOURNALCTL = "--follow --no-tail --output=short-iso-precise --utc --no-hostname --no-pager --quiet"
KUBECTL = "logs --follow --prefix --timestamps --tail=-1 --max-log-requests=64"


@pytest.mark.parametrize(
    ("kind", "what", "argv"),
    [
        ("journald", "prefill", ["--unit=prefill", *JOURNALCTL.split(), "--since=@1782555372.000000"]),
        ("docker", "p0", ["logs", "--follow", "--timestamps", "--since=1782555372.000000042", "p0"]),
        (
            "kubectl",
            "-l 'app in (a, b)'",
            [*KUBECTL.split(), "--since-time=2026-06-27T10:16:12.000000042Z", "-l", "app in (a, b)"],
        ),
    ],
)
def test_how_services_are_asked(kind: str, what: str, argv: list[str], services: Services) -> None:
    asked = wraps.argv(kind, what, 1_782_555_372_000_000_042)
    assert asked[0].startswith(f"{services.folder}/bin/")
    assert argv == asked[1:]


@pytest.mark.parametrize(("kind", "what", "tool"), KINDS)
def test_a_service_is_resumed_where_it_was_left_without_a_gap_or_a_line_twice(
    kind: str, what: str, tool: str, services: Services, listen: Listen
) -> None:
    (look,) = probe([{"kind": kind, "what": what}])
    at = stamp()
    services.tell(tool, at, "thread-1 died")
    services.tell(tool, at, "thread-2 died")
    first = listen(kind, what, look["cursors"])
    first.until(lambda: len(first.lines) == 2)
    first.follower.close()  # the connection is cut
    services.tell(tool, at, "thread-3 died")  # in the same microsecond
    services.tell(tool, stamp(0.1), "thread-4 died")
    second = listen(kind, what, first.cursors)
    second.until(lambda: "thread-4 died" in second.lines)
    second.finish()
    assert ["thread-3 died", "thread-4 died"] == second.lines
    assert [] == second.of("gap")
    assert first.cursors["0"]["offset"] == second.heard[0]["ranges"][0][0]


def test_both_streams_of_a_container_are_read(services: Services, listen: Listen) -> None:
    services.tell("docker", stamp(1), "thread-1 died")
    services.tell("docker", stamp(1), "thread-2 died", stream="err")
    listener = listen("docker", "prefill-0")
    listener.until(lambda: len(listener.lines) == 2)
    assert {("thread-1 died", 0), ("thread-2 died", 1)} == {
        (hit[1], message["text"]) for message in listener.heard for hit in message.get("hits", ())
    }


def test_lines_of_several_pods_that_come_out_of_order_are_neither_lost_nor_repeated(
    services: Services, listen: Listen
) -> None:
    (look,) = probe([{"kind": "kubectl", "what": "-l app=x"}])
    services.tell("kubectl", stamp(2), "thread-1 died", pod="a")
    first = listen("kubectl", "-l app=x", look["cursors"])
    first.until(lambda: first.lines)
    first.follower.close()
    services.tell("kubectl", stamp(1), "thread-2 died", pod="b")  # written before, delivered after
    second = listen("kubectl", "-l app=x", first.cursors)
    second.until(lambda: second.lines)
    second.finish()
    assert ["thread-2 died"] == second.lines


def test_a_service_that_hangs_up_is_asked_again_for_what_it_had_to_say(
    services: Services, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printed, "AGAIN_S", 0.01)
    services.tell("docker", stamp(1), "thread-1 died")
    services.end("docker")
    listener = listen("docker", "prefill-0")
    listener.until(lambda: listener.of("blind"))
    services.go_on("docker")
    services.tell("docker", stamp(2), "thread-2 died")
    listener.until(lambda: len(listener.lines) == 2)
    listener.finish()
    assert ["thread-1 died", "thread-2 died"] == listener.lines
    assert ([], ["it ended with status 0"], True) == (
        listener.of("gap"),
        listener.of("blind")[:1],
        listener.of("whole")[0],
    )


@pytest.mark.parametrize(
    ("kind", "what", "why"),
    [
        ("docker", "gone", "Error: No such container: gone"),
        ("command", "echo no such service >&2; exit 3", "no such service"),
        ("command", "exit 3", "it ends at once, with status 3"),
        ("command", "nonesuch-tool", "nonesuch-tool: not found"),
        ("kubectl", "'", "No closing quotation"),
        ("journald", "gone", "the journal shows no line of this unit"),
    ],
)
def test_a_command_that_cannot_print_a_log_is_found_out_with_its_own_words(
    kind: str, what: str, why: str, services: Services
) -> None:
    (look,) = probe([{"kind": kind, "what": what}])
    assert why in look["why"]


def test_a_command_that_fails_at_once_is_blind_for_the_reason_that_it_gave(listen: Listen) -> None:
    listener = listen("command", "echo no such service >&2; exit 3")
    listener.until(lambda: listener.of("blind"))
    listener.finish()
    assert {"no such service"} == set(listener.of("blind"))
    assert not any(listener.of("whole"))


def test_what_a_command_printed_between_two_lives_is_lost_and_that_is_said(listen: Listen) -> None:
    first = listen("command", "echo thread-1 died; sleep 100")
    first.until(lambda: first.lines)
    first.follower.close()
    second = listen("command", "echo thread-2 died; sleep 100", first.cursors)
    second.until(lambda: second.lines)
    assert ["what it printed while nobody listened is lost"] == second.of("gap")
    assert 14 == second.heard[0]["ranges"][0][0]  # bytes are counted on


PAST = "echo thread-0 died; echo '[2020-06-27 10:16:12 TP0] thread-1 died'; echo thread-2 died"


def test_the_past_that_a_command_prints_first_is_no_evidence_and_its_lines_are_counted(
    listen: Listen, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    new.touch()
    listener = listen("command", f"echo thread-9 died >&2; {PAST}; exec tail -F {new}")
    pipes = listener.follower._sources[0]._pipes
    listener.until(lambda: all(pipe.lines.offset and not pipe.opening for pipe in pipes))
    assert [] == listener.lines
    new.write_text("thread-3 died\n[2020-06-27 10:16:13 TP0] thread-4 died\n")  # by a clock that nobody knows
    listener.until(lambda: len(listener.lines) == 2)
    listener.finish()
    assert ["thread-3 died", "thread-4 died"] == listener.lines
    last = {m["text"]: m["ranges"][-1][4:] for m in listener.heard if m.get("ranges")}
    note = "known lines older than the run, or told before: "
    assert {0: [note + "3", False], 1: [note + "1", False]} == last


def test_either_stream_tells_whether_what_comes_first_is_past(listen: Listen) -> None:
    listener = listen("command", f"echo thread-9 died; {{ {PAST}; }} >&2; sleep 100")
    pipes = listener.follower._sources[0]._pipes
    listener.until(lambda: all(pipe.lines.offset and not pipe.opening for pipe in pipes))
    listener.finish()
    assert ([], [1, 3]) == (listener.lines, [pipe.past.count for pipe in pipes])


def test_lines_of_a_log_without_stamps_count_although_they_come_first(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = listen("command", "echo thread-1 died; echo thread-2 died >&2; sleep 100")
    listener.until(lambda: len(listener.lines) == 2)
    monkeypatch.setattr(history, "PAUSE_S", 1000.0)
    early = listen("command", "echo thread-1 died; sleep 100")
    early.until(lambda: early.heard[-1:] and early.follower._sources[0]._pipes[0].lines.offset)
    early.finish()
    assert ["thread-1 died"] == early.lines


def test_a_command_that_never_pauses_prints_what_is_new_after_a_while(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PAUSE_S", 1000.0)
    monkeypatch.setattr(history, "OPENING_S", 0.2)
    listener = listen("command", "while :; do echo '[2020-06-27 10:16:12 TP0] thread-1 died'; sleep 0.01; done")
    listener.until(lambda: listener.lines)
    assert listener.follower._sources[0]._pipes[0].past.count > 0


def test_what_a_command_prints_again_when_it_is_started_again_does_not_count_twice(
    listen: Listen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(printed, "AGAIN_S", 0.01)
    log = tmp_path / "log"
    log.write_text(f"thread-0 died\n[{stamp(1)}] thread-1 died\n[{stamp(2)}] thread-2 died\n")
    listener = listen("command", f"cat {log}; sleep 0.3")
    listener.until(lambda: len(listener.lines) == 3 and listener.of("blind"))
    assert ["thread-0 died", "thread-1 died", "thread-2 died"] == sorted(listener.lines)
    with log.open("a") as file:
        file.write(f"[{stamp(3)}] thread-3 died\n")
    listener.until(lambda: len(listener.lines) == 4)
    listener.follower.close()
    again = listen("command", f"cat {log}; echo '[{stamp(4)}] thread-4 died'; sleep 100", listener.cursors)
    again.until(lambda: again.lines)
    again.finish()
    assert ("thread-3 died", ["thread-4 died"]) == (listener.lines[3], again.lines)


def test_a_last_line_without_an_end_is_read_and_nothing_of_the_end_is_missed(listen: Listen, tmp_path: Path) -> None:
    said = tmp_path / "said"
    listener = listen("command", f"printf 'thread-1 died'; sleep 0.1; printf '\\nthread-2 died'; >{said}; sleep 100")
    listener.until(lambda: listener.heard and listener.heard[0].get("source") == 0)
    until(said.exists)
    listener.finish()
    assert ["thread-1 died", "thread-2 died"] == listener.lines


def test_what_is_still_on_its_way_at_the_end_is_waited_for(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "QUIET_S", 2.0)
    monkeypatch.setattr(printed, "FINISH_S", 4.0)
    listener = listen("command", "sleep 0.2; echo thread-1 died; sleep 100")
    listener.heard += listener.follower.turn()
    listener.finish()
    assert ["thread-1 died"] == listener.lines


def test_whoever_prints_faster_than_may_be_read_waits_and_then_loses_bytes_that_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(printed, "LATE_S", 0.05)
    source = {"node": "n", "kind": "command", "what": "yes 'a line of a log that nobody needs'", "cursors": {}}
    follower = follow.Follower([source], KNOWN, Budget(bytes_per_s=1 << 20))
    spans: list[list[Any]] = []
    deadline = time.monotonic() + SOON_S
    while sum(bool(span[3]) for span in spans) < 2 and time.monotonic() < deadline:
        for message in follower.turn():
            spans += message.get("ranges", ())
    follower.close()
    assert 2 == sum(bool(span[3]) for span in spans)
    at = 0
    for start, end, _, lost, *_ in spans:  # every byte is either read or lost
        assert at == start
        at = end + lost
    assert sum(span[1] - span[0] for span in spans) < 1 << 26


def gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return all(found is None or found.gone for found in (proc.stat(pid) for pid in members(group)))


def members(group: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _group(pid) == group]


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def wait_gone(group: int) -> None:
    deadline = time.monotonic() + SOON_S
    while not gone(group):
        assert time.monotonic() < deadline, members(group)
        time.sleep(0.01)


STUBBORN = "trap '' TERM; (trap '' TERM; while :; do sleep 1000; done) & echo up; while :; do sleep 1000; done"


def test_a_command_and_its_children_are_ended_also_when_they_refuse(listen: Listen) -> None:
    listener = listen("command", STUBBORN)
    listener.until(lambda: any(span[1] for m in listener.heard for span in m.get("ranges", ())))
    group = listener.follower._sources[0]._running.group
    assert len(members(group)) >= 3
    listener.follower.close()
    wait_gone(group)


def test_a_command_does_not_outlive_us_when_we_are_killed() -> None:
    code = (
        "import sys, time; from chaos.outpost.running import Running\n"
        f"one = Running(['/bin/sh', '-c', {STUBBORN!r}], 'r1')\n"
        "print(one.group, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as us:
        group = int(us.stdout.readline())
        try:
            assert not gone(group)
        finally:
            us.send_signal(signal.SIGKILL)
    wait_gone(group)


def test_the_end_of_what_was_printed_can_be_asked_for_while_it_is_followed(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "KEPT_BYTES", 40)
    command = "seq 1000 1099; echo thread-1 died; echo to both >&2; sleep 100"
    listener = listen("command", command)
    listener.until(lambda: listener.lines and {m["text"] for m in listener.heard if m.get("ranges")} == {0, 1})
    assert "1095\n1096\n1097\n1098\n1099\nthread-1 died\n\nto both\n" == OPS["log.recent"]("command", command)
    listener.follower.close()
    with pytest.raises(Trouble, match="nobody follows it"):
        OPS["log.recent"]("command", command)


def test_what_we_start_carries_the_mark_of_the_run(listen: Listen) -> None:
    listener = listen("command", "echo thread-$PDCHAOS_RUN; echo thread-1 died; sleep 100")
    listener.until(lambda: listener.lines)
    environ = Path(f"/proc/{listener.follower._sources[0]._running.group}/environ").read_bytes()
    assert b"PDCHAOS_RUN=r1" in environ.split(b"\0")
