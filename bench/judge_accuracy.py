"""Measures the judge like a classifier: `python -m bench accuracy --reps 10 --jobs 3 --only BUILD…`.

Every run is a process of its own and one line in a results file, so that an interrupted measurement goes on with
`--resume`. Runs that were right leave only their line; all others leave their folder, too. With `--rejudge DIR` the
results of an earlier measurement are taken over, each saved journal judged by the present judge.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.accuracy_table import RIGHT, Entry, GroundTruth, Result, accuracy_md, grade, read_ground_truth
from bench.rejudge import judged_anew
from chaos import __version__, library
from chaos.journal import read_journal
from chaos.judge import JUDGE_VERSION
from chaos.judge.units import count
from chaos.lab.catalogue import KINDS
from chaos.model.errors import PdchaosError
from chaos.model.events import HarnessHealth
from chaos.model.outcomes import Outcome
from chaos.model.verdict import Verdict

TRUTH = Path(__file__).parent / "ground_truth.yaml"
STARVED_LAG_MS = 500.0
"""A process that did not get to run for so long was starved: a canary's deadline and an agent's beat are in doubt."""
LONGEST_RUN_S = 1800.0


class Runner:
    """Makes runs, several at a time, and ends them when the measurement is stopped."""

    def __init__(self, out: Path, *, keep_all: bool) -> None:
        self.out = out
        self.keep_all = keep_all
        self.stopped = threading.Event()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def measure(self, entry: Entry, rep: int) -> Result | None:
        """One run; once more when it was inconclusive and starved. None when the measurement was stopped."""
        result = self._run(entry, rep, repeated=False)
        starved = result.outcome is Outcome.INCONCLUSIVE and result.lag_ms >= STARVED_LAG_MS
        if starved and grade(entry, result) != RIGHT and not self.stopped.is_set():
            result = self._run(entry, rep, repeated=True)
        if self.stopped.is_set():
            return None
        if grade(entry, result) == RIGHT and not self.keep_all and result.folder:
            shutil.rmtree(self.out / result.folder, ignore_errors=True)
            result = msgspec.structs.replace(result, folder="")
        return result

    def _run(self, entry: Entry, rep: int, *, repeated: bool) -> Result:
        reports = self.out / "runs" / "".join(c if c.isalnum() or c in "-_." else "-" for c in f"{entry.key}-{rep}")
        shutil.rmtree(reports, ignore_errors=True)  # of a try that was interrupted, or starved
        reports.mkdir(parents=True)
        command = [sys.executable, "-m", "chaos", "run", entry.scenario, *entry.options(), "--plain"]
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        begun = time.monotonic()
        with (reports / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [*command, "--reports", str(reports)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a ctrl-C is for us; we pass it on once
            )
            with self._lock:
                self._running.add(process)
            try:
                code = process.wait(LONGEST_RUN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            with self._lock:
                self._running.discard(process)
        return Result(
            key=entry.key,
            rep=rep,
            exit_code=code,
            folder=str(reports.relative_to(self.out)),
            seconds=round(time.monotonic() - begun, 1),
            load=round(load, 2),
            repeated=repeated,
            **_judged(reports),
        )

    def stop(self) -> None:
        """End every run as a second ctrl-C would: cleanly, and at once."""
        self.stopped.set()
        with self._lock:
            running = tuple(self._running)
        for process in running:
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)


def _judged(reports: Path) -> dict[str, object]:
    """What the one run in this folder said, and how we were; no outcome where there is no verdict."""
    found = sorted(reports.glob("*/verdict.json"))
    if len(found) != 1:
        return {"outcome": None}
    verdict = msgspec.json.decode(found[0].read_bytes(), type=Verdict)
    try:
        events = read_journal(found[0].with_name("journal.jsonl")).events
    except PdchaosError:
        events = ()
    lag_ms = max((event.lag_max_ms for event in events if isinstance(event, HarnessHealth)), default=0.0)
    return {
        "outcome": verdict.outcome,
        "side": verdict.wedge.side if verdict.wedge else "",
        "headline": verdict.headline,
        "lag_ms": round(lag_ms, 1),
        "judge": verdict.judge_version,
    }


def read_results(path: Path) -> list[Result]:
    """The results so far; a last line that was cut off is as if it had not been written."""
    results = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            results.append(msgspec.json.decode(line, type=Result))
        except msgspec.DecodeError:
            continue
    return results


def to_do(entries: list[Entry], results: list[Result], reps: int) -> list[tuple[Entry, int]]:
    """What is left to run: every entry once, then every entry again, so that an early end has some of everything."""
    done = {(result.key, result.rep) for result in results}
    return [(entry, rep) for rep in range(1, reps + 1) for entry in entries if (entry.key, rep) not in done]


def _about(results: list[Result], jobs: int) -> dict[str, str]:
    loads = sorted(result.load for result in results) or [0.0]
    lags = sorted(result.lag_ms for result in results) or [0.0]
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "pdchaos": __version__,
        "judge": _judges(results),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "runs at a time": str(jobs),
        "machine's load per core when runs began": f"median {loads[len(loads) // 2]:.1f}, largest {loads[-1]:.1f}",
        "our own largest lag in a run": f"median {lags[len(lags) // 2]:.0f} ms, largest {lags[-1]:.0f} ms",
    }


def _judges(results: list[Result]) -> str:
    """Which versions of the judge these verdicts are of, and which runs had been judged by another when they were made.

    What an earlier engine recorded and a later judge judged is not what a user of either would have got.
    """
    versions = Counter(result.judge or "unknown" for result in results) or Counter({JUDGE_VERSION: 0})
    anew = Counter(result.first_judge for result in results if result.first_judge)
    told = [f"version {each} ({count(runs, 'run')})" for each, runs in sorted(versions.items())]
    told += [
        f"{count(runs, 'journal')} recorded when the judge was version {each}, and judged anew"
        for each, runs in sorted(anew.items())
    ]
    return "; ".join(told)


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench accuracy", description=__doc__)
    parser.add_argument("--reps", type=int, default=10, help="runs per entry (10)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (1)")
    parser.add_argument("--only", nargs="+", default=[], metavar="BUILD", help="only these builds")
    parser.add_argument("--scenario", nargs="+", default=[], metavar="NAME", help="only these scenarios")
    parser.add_argument("--truth", type=Path, default=TRUTH, metavar="FILE")
    parser.add_argument("--out", type=Path, default=Path("reports/accuracy"), metavar="DIR", help="results and folders")
    parser.add_argument("--table", type=Path, metavar="FILE", help="where the table goes, else to DIR/accuracy.md")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier measurement stopped")
    parser.add_argument("--rejudge", type=Path, metavar="DIR", help="judge the runs of an earlier --out anew; run none")
    parser.add_argument("--keep-all", action="store_true", help="keep the folders of right runs, too")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run what is left, write the table; 1 when a verdict is wrong, 2 for a wrong file or option."""
    asked = _arguments(words)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell started us with ctrl-C ignored
        signal.signal(number, signal.default_int_handler)
    builds = [build.name for build in KINDS["sim"].info().builds]
    try:
        entries = read_ground_truth(asked.truth.read_text(), builds=builds, scenarios=library.names("scenarios"))
    except (GroundTruth, OSError) as error:
        print(f"{asked.truth}: {error}", file=sys.stderr)
        return 2
    entries = [entry for entry in entries if not asked.only or entry.build in asked.only]
    entries = [entry for entry in entries if not asked.scenario or entry.scenario in asked.scenario]
    log = asked.out / "results.jsonl"
    if asked.rejudge and not (asked.rejudge / "results.jsonl").exists():
        print(f"{asked.rejudge}: no results.jsonl of a measurement here", file=sys.stderr)
        return 2
    if log.exists() and not (asked.resume or asked.rejudge):
        print(f"{log} is there already: --resume goes on with it, or remove it", file=sys.stderr)
        return 2
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.rejudge:
        interrupted = _rejudge(asked.rejudge, log)
    else:
        runner = Runner(asked.out.absolute(), keep_all=asked.keep_all)
        left = to_do(entries, read_results(log), asked.reps)
        interrupted = _play(runner, left, log, asked.jobs)
    results = [result for result in read_results(log) if result.rep <= asked.reps]
    table = asked.table or asked.out / "accuracy.md"
    table.write_text(accuracy_md(entries, results, _about(results, asked.jobs)))
    by_key = {entry.key: entry for entry in entries}
    wrong = sum(grade(by_key[result.key], result) == "wrong" for result in results if result.key in by_key)
    print(f"{len(results)} runs, {wrong} wrong: {table}")
    return 130 if interrupted else int(wrong > 0)


def _rejudge(source: Path, log: Path) -> bool:
    """Write the results of `source`, judged anew, in the place of whatever `log` was; True when a ctrl-C stopped it."""
    found = read_results(source / "results.jsonl")
    new = log.with_suffix(".new")
    try:
        with new.open("wb") as lines:
            for old, result in zip(found, judged_anew(found, source, log.parent), strict=True):
                lines.write(msgspec.json.encode(result) + b"\n")
                if old.outcome is not result.outcome or old.side != result.side:
                    print(f"{result.key} #{result.rep}: {old.outcome} {old.side} -> {result.outcome} {result.side}")
    except KeyboardInterrupt:
        new.unlink()
        print("stopped: nothing is changed", flush=True)
        return True
    new.replace(log)
    return False


def _play(runner: Runner, left: list[tuple[Entry, int]], log: Path, jobs: int) -> bool:
    """Make the runs, one line each as they end; True when a ctrl-C stopped it."""
    if log.exists() and not log.read_bytes().endswith(b"\n"):
        log.write_bytes(log.read_bytes() + b"\n")  # whoever was killed while writing left half a line
    with ThreadPoolExecutor(jobs) as pool, log.open("ab") as lines:
        waiting = {pool.submit(runner.measure, entry, rep): entry for entry, rep in left}
        try:
            for at, future in enumerate(as_completed(waiting), 1):
                result = future.result()
                if result is None:
                    continue
                lines.write(msgspec.json.encode(result) + b"\n")
                lines.flush()
                said = result.outcome.value if result.outcome else f"no verdict, exit {result.exit_code}"
                mark = grade(waiting[future], result)
                print(
                    f"{at}/{len(left)} {mark}: {result.key} #{result.rep}: {said} ({result.seconds:.0f} s)", flush=True
                )
        except KeyboardInterrupt:
            print("stopping: runs under way are ended, what is done is kept (--resume goes on)", flush=True)
            for future in waiting:
                future.cancel()
            runner.stop()
            return True
    return False
