"""Whole snapshots of real processes and servers: complete, bounded, without secrets, beside a loop that goes on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from chaos.engine.forensics import Forensics, Subject, Suspicion, collect, folder
from chaos.engine.forensics.nodes import Nodes
from chaos.engine.forensics.redact import Redactor
from chaos.engine.hosts import Here, HostLost
from chaos.engine.ports import SystemClock
from chaos.engine.probes.http import make_http
from chaos.engine.probes.process import ProcessProbe, ProcessSource
from chaos.journal import RunFolder
from chaos.model import events as ev
from chaos.model.target import ServerSpec
from chaos.outpost import stacks
from chaos.outpost.recent import Recent, remember
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pytest

sys.path.append(str(Path(__file__).parent.parent / "probes"))

from probe_helpers import Recorder, serving, text, until

SECRET = "sk-very-secret-0815"  # noqa: S105 - made up
OTHER = "hf-also-secret-4711"
METRICS = 'sglang:num_queue_reqs{model_name="m"} 3.0\n'


@dataclass
class Bench:
    """Forensics of one node."""

    forensics: Forensics
    suspicion: Suspicion
    folder: RunFolder
    emit: Recorder = field(default_factory=Recorder)

    @property
    def taken(self) -> ev.ForensicsTaken:
        return self.emit.of(ev.ForensicsTaken)[-1]

    def read(self, name: str) -> str:
        return (self.folder.root / self.taken.folder / name).read_text()


@contextlib.asynccontextmanager
async def bench(
    tmp_path: Path,
    process: object,
    host: Here | None = None,
    logs: tuple[tuple[str, str], ...] = (),
    printed: tuple[tuple[str, dict[str, str]], ...] = (),
    **servers: object,
) -> AsyncIterator[Bench]:
    """Forensics of a node whose process is `process`."""
    folder = RunFolder.create(tmp_path, utc="20261129T000000Z", scenario="s", run_id="r1")
    folder.write("target.yaml", "api_key: env:KEY\n")
    folder.write("scenario.yaml", "name: s\n")
    log = tmp_path / "prefill-0.log"
    log.write_text(f"server_args=ServerArgs(api_key='{SECRET}')\n")

    async def info(request: web.Request) -> web.Response:
        told = {"version": "0.5.14", "api_key": SECRET, "many": list(range(500)), "tokenizer_path": "m"}
        return web.json_response(told)

    emit, suspicion, clock = Recorder(), Suspicion(), SystemClock()
    routes = {"metrics": text(METRICS), "server_info": info, **servers}
    async with serving(**routes) as url, make_http() as http, asyncio.TaskGroup() as tasks:
        spec = ServerSpec(url=url, pid=process.pid)
        watched = ProcessProbe(
            [ProcessSource(node="prefill-0", spec=spec, host=Here(), found=process.located)], emit=emit, clock=clock
        )
        forensics = Forensics(
            [
                Subject(
                    node="prefill-0",
                    host=host or Here(),
                    printed=printed,
                    metrics_url=url + "/metrics",
                    info_url=url + "/server_info",
                    logs=logs or (("log", str(log)),),
                ),
                Subject(node="decode-0", host=Here()),
            ],
            watched=watched,
            wanted=["control_thread"],
            http=http,
            headers={},
            emit=emit,
            clock=clock,
            folder=folder,
            suspicion=suspicion,
            secrets=[SECRET],
        )
        waiting = forensics.start(tasks)
        try:
            yield Bench(forensics, suspicion, folder, emit)
        finally:
            waiting.cancel()
            await forensics.close()


def everything(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_a_snapshot_holds_stacks_processes_metrics_logs_settings_and_an_index(
    tmp_path: Path, start: Callable
) -> None:
    async with bench(tmp_path, start()) as one:
        await one.forensics.save("not-recovered", "routed")
    taken = one.taken
    assert ("forensics/0-not-recovered", "routed", {"prefill-0": 3}) == (taken.folder, taken.detail, taken.stacks)
    index = json.loads(one.read("index.json"))
    assert ("not-recovered", "routed", 0) == (index["reason"], index["detail"], index["number"])
    on_disk = {path.name: path.stat().st_size for path in (one.folder.root / taken.folder).iterdir()}
    assert sorted(taken.files) == sorted(on_disk)
    assert {entry["name"]: entry["size"] for entry in index["files"]}.items() <= on_disk.items()
    assert "Thread-1 (control_thread)" in one.read("prefill-0-stacks.txt")
    assert 3 == len(next(iter(json.loads(one.read("prefill-0-stacks.json")).values())))
    assert METRICS == one.read("prefill-0-metrics.prom")
    info = json.loads(one.read("prefill-0-info.json"))
    assert ("0.5.14", "m", 51) == (info["version"], info["tokenizer_path"], len(info["many"]))
    (seen,) = json.loads(one.read("prefill-0-processes.json"))
    assert sys.executable == seen["command"][0]
    assert "ServerArgs" in one.read("prefill-0-log.txt")
    assert {"target.yaml", "scenario.yaml"} <= set(taken.files)
    assert ("decode-0: processes: nobody knows where they are",) == taken.missing


async def test_no_secret_is_in_any_file_wherever_it_stood(tmp_path: Path, start: Callable) -> None:
    env = {**os.environ, "HF_TOKEN": OTHER, "SGLANG_NOTE": f"uses {OTHER}", "SOMETHING": "nobody-needs-this"}
    process = start(f"SECRETS = '{OTHER}'\nprint('up', flush=True)\nimport sys; sys.stdin.read()", "--api-key", SECRET,
                    env=env)  # fmt: skip
    async with bench(tmp_path, process, metrics=text(f'm{{key="{OTHER}"}} 1\n')) as one:
        await one.forensics.save("fatal-line")
    saved = everything(one.folder.root / "forensics")
    assert [] == [secret for secret in (SECRET, OTHER, "nobody-needs-this") if secret in saved]
    (seen,) = json.loads(one.read("prefill-0-processes.json"))
    assert ("[redacted]", "uses [redacted]", "[not saved]") == tuple(
        seen["environment"][name] for name in ("HF_TOKEN", "SGLANG_NOTE", "SOMETHING")
    )
    assert "[redacted]" == seen["command"][-1]


async def test_children_are_looked_into_too_and_their_threads_are_the_node_s(tmp_path: Path, start: Callable) -> None:
    from engines import PARENT

    async with bench(tmp_path, start(PARENT)) as one:
        one.forensics.look("baseline")
        await one.forensics.settle()
    (told,) = one.emit.of(ev.ProcessSeen)
    assert ("python", True) == (told.threads_by, told.alive)
    assert ("Thread-1 (control_thread)", "MainThread", "MainThread", "east (worker)") == told.threads
    assert 1 == len(told.children)
    assert (True, {"prefill-0": 4}) == (one.taken.threads_only, one.taken.stacks)
    assert {"prefill-0-stacks.txt", "prefill-0-stacks.json", "index.json"} == set(one.taken.files)


async def test_the_loss_of_a_thread_shows_between_two_looks(tmp_path: Path, start: Callable) -> None:
    process = start()
    async with bench(tmp_path, process) as one:
        await one.forensics.save("baseline")
        process.end_control_thread()
        await one.forensics.save("end")
    assert [True, False] == ["Thread-1 (control_thread)" in seen.threads for seen in one.emit.of(ev.ProcessSeen)]


async def test_the_first_suspicion_saves_by_itself_and_marks_the_log_at_the_fault(
    tmp_path: Path, start: Callable
) -> None:
    async with bench(tmp_path, start()) as one:
        one.suspicion.on_event(ev.PhaseEntered(t_ns=0, phase="load"))
        one.suspicion.on_event(ev.WaveFired(t_ns=0, wave="w", how="sigkill", ordered_ns=0))
        one.suspicion.on_event(
            ev.LogHit(t_ns=0, node="prefill-0", stream="log", signature="s", klass="fatal", line="x", title="it died")
        )
        await until(lambda: one.emit.of(ev.ForensicsTaken))
    assert ("fatal-line", "prefill-0: it died") == (one.taken.reason, one.taken.detail)


async def test_of_a_long_log_what_stood_around_the_fault_is_saved(tmp_path: Path, start: Callable) -> None:
    class Told(Here):
        marked = False

        async def call(self, op: str, /, **args: object) -> object:
            value = await super().call(op, **args)
            self.marked = self.marked or op == "ends"
            return value

    host = Told()
    async with bench(tmp_path, start(), host) as one:
        with (tmp_path / "prefill-0.log").open("a") as log:
            log.write("long before\n" * 50_000 + "just before\n")
            log.flush()
            one.suspicion.on_event(ev.WaveFired(t_ns=0, wave="w", how="sigkill", ordered_ns=0))
            await until(lambda: host.marked)
            log.write("just after\n" + "long after\n" * 50_000)
        await one.forensics.save("fatal-line")
    assert "just before\njust after\n" in one.read("prefill-0-log.txt")


async def test_a_host_that_hangs_costs_the_nodes_of_others_nothing(tmp_path: Path, start: Callable) -> None:
    answered, outlasted = asyncio.Event(), []

    class Answering(Here):
        async def call(self, op: str, /, **args: object) -> object:
            value = await super().call(op, **args)
            answered.set()
            return value

    class Hanging(Here):
        async def call(self, op: str, /, **args: object) -> object:
            await asyncio.wait([asyncio.ensure_future(answered.wait())], timeout=60)
            outlasted.append(answered.is_set())
            raise HostLost("no answer")

    process = start()
    snapshot = folder.Snapshot(
        RunFolder.create(tmp_path, utc="20261129T000000Z", scenario="s", run_id="r1"),
        0,
        "fatal-line",
        Redactor(()),
        time.monotonic() + 200,
    )

    class Two:
        def located(self) -> dict[str, object]:
            return {"decode-0": process.located, "prefill-0": process.located}

    subjects = [Subject(node="decode-0", host=Hanging()), Subject(node="prefill-0", host=Answering())]
    read = await Nodes(subjects, Two(), Redactor(())).stacks(snapshot)
    assert (0, 3) == (read["decode-0"].count, read["prefill-0"].count)
    assert True is all(outlasted)


async def test_without_the_tool_all_else_is_saved_and_the_lack_is_told(
    tmp_path: Path, start: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "py_spy", lambda: None)
    async with bench(tmp_path, start()) as one:
        await one.forensics.save("fatal-line")
    assert "prefill-0: thread stacks: py-spy is not installed (pip install 'pdchaos[forensics]')" in one.taken.missing
    assert "py-spy is not installed" in one.read("index.json")
    assert {"prefill-0-metrics.prom", "prefill-0-processes.json"} <= set(one.taken.files)
    assert [] == one.emit.of(ev.ProcessSeen)


async def test_names_of_a_node_that_could_be_read_only_in_part_are_not_told(
    tmp_path: Path, start: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engines import PARENT

    parent = start(PARENT)
    real = stacks.stacks_of

    def half(program: str, pid: int) -> list[dict]:
        if pid != parent.pid:
            raise Trouble("no-stacks", "py-spy is not permitted to look at it")
        return real(program, pid)

    monkeypatch.setattr(stacks, "stacks_of", half)
    async with bench(tmp_path, parent) as one:
        one.forensics.look("baseline")
        await one.forensics.settle()
    assert ([], {"prefill-0": 1}) == (one.emit.of(ev.ProcessSeen), one.taken.stacks)
    assert ("prefill-0: thread stacks: py-spy is not permitted to look at it",) == one.taken.missing


async def test_servers_and_logs_that_tell_nothing_are_listed_with_their_reasons(
    tmp_path: Path, start: Callable
) -> None:
    async with bench(tmp_path, start(), metrics=text("no", status=404), server_info=text("<html>")) as one:
        (tmp_path / "prefill-0.log").unlink()
        await one.forensics.save("fatal-line")
    assert {"prefill-0: metrics: HTTP 404", "prefill-0: log: No such file or directory"} < set(one.taken.missing)
    assert any(missing.startswith("prefill-0: version and settings: no JSON") for missing in one.taken.missing)


async def test_a_dead_process_is_told_and_the_rest_is_saved(tmp_path: Path, start: Callable) -> None:
    process = start()
    async with bench(tmp_path, process) as one:
        process.popen.kill()
        process.popen.wait()
        await one.forensics.save("process-gone")
    assert {"prefill-0: thread stacks: its process is gone", "prefill-0: processes: its process is gone"} < set(
        one.taken.missing
    )
    assert "prefill-0-log.txt" in one.taken.files


async def test_a_host_that_does_not_answer_costs_what_is_there_and_nothing_else(
    tmp_path: Path, start: Callable
) -> None:
    class Lost(Here):
        async def call(self, op: str, /, **args: object) -> object:
            raise HostLost("its host is lost: cut")

    async with bench(tmp_path, start(), host=Lost()) as one:
        await one.forensics.save("fatal-line")
    assert {
        "prefill-0: thread stacks: its host did not answer in time",
        "prefill-0: processes: its host did not answer",
        "prefill-0: log: its host did not answer",
    } < set(one.taken.missing)
    assert "prefill-0-metrics.prom" in one.taken.files


async def test_of_a_pattern_the_latest_files_are_saved(tmp_path: Path, start: Callable) -> None:
    for number in range(5):
        (tmp_path / f"many-{number}.log").write_text(f"file {number}\n")
        os.utime(tmp_path / f"many-{number}.log", (number, number))
    logs = (("log", str(tmp_path / "many-*.log")),)
    async with bench(tmp_path, start(), logs=logs) as one:
        await one.forensics.save("fatal-line")
    assert ["file 2", "file 3", "file 4"] == [
        one.read(f"prefill-0-log{which}.txt").split("\n")[1] for which in ("", "-2", "-3")
    ]


async def test_of_a_log_that_is_no_file_the_end_is_saved_while_it_is_followed(tmp_path: Path, start: Callable) -> None:
    followed, gone = ({"kind": "command", "what": f"pd-logs {name}"} for name in ("prefill", "decode"))
    text = Recent()
    text.keep(b"it died\n")
    remember(followed["kind"], followed["what"], [text, Recent()])
    async with bench(tmp_path, start(), printed=(("log-1", followed), ("log-2", gone))) as one:
        await one.forensics.save("fatal-line")
    assert "it died\n" == one.read("prefill-0-log-1.txt")
    assert "prefill-0: log-2: nobody follows it now" in one.taken.missing


async def test_when_the_time_is_up_the_rest_is_left_out_and_named(
    tmp_path: Path, start: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "LIMIT_S", -1.0)
    async with bench(tmp_path, start()) as one:
        one.forensics.request("fatal-line")
        await until(lambda: one.emit.of(ev.ForensicsTaken))
    assert {"prefill-0: thread stacks: its time was up", "prefill-0: log: the time was up"} < set(one.taken.missing)


async def test_a_flood_is_cut_and_says_so(tmp_path: Path, start: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MOST_FILE_BYTES", 2000)
    monkeypatch.setattr(folder, "MOST_BYTES", 9_000)
    async with bench(tmp_path, start(), metrics=text(METRICS * 10_000)) as one:
        (tmp_path / "prefill-0.log").write_text("a line of a log\n" * 100_000)
        await one.forensics.save("fatal-line")
    sizes = {path.name: path.stat().st_size for path in (one.folder.root / one.taken.folder).iterdir()}
    index = json.loads(one.read("index.json"))
    assert 2000 == sizes["prefill-0-log.txt"]
    assert ["prefill-0-log.txt"] == [e["name"] for e in index["files"] if e.get("cut") and e["name"].endswith("txt")]
    assert 9000 >= sum(size for name, size in sizes.items() if name != "index.json")
    assert any("the snapshot is full" in missing["why"] for missing in index["missing"])


async def test_a_disk_that_refuses_costs_the_snapshot_and_nothing_else(tmp_path: Path, start: Callable) -> None:
    async with bench(tmp_path, start()) as one:
        (one.folder.root / "forensics").rmdir()
        (one.folder.root / "forensics").write_text("a file is in the way")
        await one.forensics.save("fatal-line")
    assert ((), 0) == (one.taken.files, one.taken.size)
    assert one.taken.missing


async def test_snapshots_are_taken_one_after_another_and_not_without_end(tmp_path: Path, start: Callable) -> None:
    async with bench(tmp_path, start()) as one:
        for _ in range(collect.MOST_SNAPSHOTS + 3):
            one.forensics.look("baseline")
        await one.forensics.settle()
    taken = one.emit.of(ev.ForensicsTaken)
    assert [f"forensics/{n}-baseline" for n in range(collect.MOST_SNAPSHOTS)] == [each.folder for each in taken]
    for before, after in itertools.pairwise(taken):
        assert before.t_ns <= after.src_t_ns


async def test_the_loop_goes_on_while_a_snapshot_is_taken(tmp_path: Path, start: Callable) -> None:
    log_lines = "[2026-11-29] Decode batch, #running-req: 20, #new-token: 5, token usage: 0.31\n"
    async with bench(tmp_path, start(), metrics=text(METRICS * 40_000)) as one:
        (tmp_path / "prefill-0.log").write_text(log_lines * 20_000)
        saving = asyncio.create_task(one.forensics.save("fatal-line"))
        lags = []
        while not saving.done():
            before = time.process_time()
            await asyncio.sleep(0.002)
            lags.append(time.process_time() - before)
    # Megabytes were redacted: done in one go, that would have held the loop for a good part of what it took. Counted is
    # our own computing: a machine that starves lets the loop wait, too.
    assert len(lags) > 10
    assert max(lags) < max(0.5 * sum(lags), 0.25)
    assert one.taken.size > 1_000_000
