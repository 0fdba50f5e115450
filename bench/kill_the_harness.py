"""SIGKILLs pdchaos at random moments of runs that break hosts, and looks at what is left: `python -m bench kills`.

Each kill is one run of a scenario in `bench/kills/` on a test bed of network namespaces (`testbed/`): half of the kills
fall while the fault stands, half anywhere in the run. Afterwards nothing of ours may be left on any host once the
time-to-live is over, the journal must be readable by `pdchaos judge`, and the next run must begin without anybody's
help. A whole run at the end shows that the deployment still serves.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from testbed.bed import Bed

SCENARIOS = Path(__file__).parent / "kills"
FAULTS = ("partition", "rate", "loss", "stop", "port-block")
BEGINS_S = 180.0
"""Connecting, the baseline and the load's first seconds, on a busy machine."""
TTL_S = 60.0
"""The longest time-to-live of the scenarios on the bed's clocks, with what a busy machine adds."""
JUDGED = frozenset({0, 1, 3, 6, 8, 9})
"""Exit codes of `pdchaos judge` that are a verdict."""
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill and what it left."""

    fault: str
    moment: str
    stood: bool  # the fault was in force when the kill came
    clean_after_s: float | None  # None: something was left
    left: str
    judged: int | None  # exit code of `pdchaos judge`; None where nothing was recorded yet
    began: bool  # the run came as far as a journal: nothing of an earlier one kept it from beginning

    @property
    def wrong(self) -> str:
        """What is wrong about it; empty when nothing is."""
        if self.clean_after_s is None:
            return f"left behind: {self.left}"
        if not self.began:
            return "the run did not begin"
        if self.judged is not None and self.judged not in JUDGED:
            return f"the journal cannot be judged (exit {self.judged})"
        return ""


def kill_once(bed: Bed, fault: str, reports: Path, *, after_s: float | None, via: str = "tunnel") -> Kill:
    """One run, killed `after_s` seconds after its journal began, or (None) while its fault stands."""
    before = set(reports.glob("*")) if reports.exists() else set()
    command = [sys.executable, "-m", "chaos", "run", str(SCENARIOS / f"{fault}.yaml"), "-t", str(bed.target(via))]
    with (reports.parent / "output.txt").open("ab") as output:
        process = bed.popen_laptop(
            [*command, "--plain", "--reports", str(reports)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        journal = _wait_for_journal(process, reports, before)
        if journal is not None:
            _await_moment(process, journal, after_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    killed = time.monotonic()
    stood = journal is not None and _stands(journal)
    clean_after_s, left = _await_clean(bed, killed)
    judged = None
    if journal is not None and journal.stat().st_size:
        judge = [sys.executable, "-m", "chaos", "judge", str(journal.parent)]
        judged = subprocess.run(judge, check=False, capture_output=True, timeout=120).returncode
    moment = "while it stood" if after_s is None else f"{after_s:.1f} s after it began"
    return Kill(fault, moment, stood, clean_after_s, left, judged, began=journal is not None)


def _wait_for_journal(process: subprocess.Popen[bytes], reports: Path, before: set[Path]) -> Path | None:
    deadline = time.monotonic() + BEGINS_S
    while time.monotonic() < deadline and process.poll() is None:
        for folder in set(reports.glob("*")) - before:
            if (folder / "journal.jsonl").exists():
                return folder / "journal.jsonl"
        time.sleep(POLL_S)
    return None


def _await_moment(process: subprocess.Popen[bytes], journal: Path, after_s: float | None) -> None:
    deadline = time.monotonic() + (BEGINS_S if after_s is None else after_s)
    while time.monotonic() < deadline and process.poll() is None:
        if after_s is None and _stands(journal):
            return
        time.sleep(POLL_S)


def _stands(journal: Path) -> bool:
    """Whether a fault is in force by what was recorded."""
    stages = [
        event["stage"]
        for line in journal.read_bytes().splitlines()
        if b'"fault.step"' in line and (event := _decoded(line)).get("ok")
    ]
    return "applied" in stages and "reverted" not in stages


def _decoded(line: bytes) -> dict[str, object]:
    try:
        found: dict[str, object] = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return {}  # the last line, cut
    return found


def _await_clean(bed: Bed, killed: float) -> tuple[float | None, str]:
    """Seconds until nothing was left, or None and what was."""
    while left := bed.leftovers():
        if time.monotonic() - killed > TTL_S:
            return None, "; ".join(f"{host}: {what}" for host, what in left.items())
        time.sleep(POLL_S)
    return time.monotonic() - killed, ""


def whole_run(bed: Bed, reports: Path, *, via: str = "tunnel") -> int:
    """The exit code of a run that nobody kills."""
    command = [sys.executable, "-m", "chaos", "run", str(SCENARIOS / "partition.yaml"), "-t", str(bed.target(via))]
    with (reports.parent / "output.txt").open("ab") as output:
        process = bed.popen_laptop(
            [*command, "--plain", "--reports", str(reports)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    return int(process.wait(900))


def main(words: list[str]) -> int:
    """Kill as often as asked; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench kills", description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="kills (50)")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=FAULTS, metavar="FAULT")
    parser.add_argument("--via", choices=("direct", "tunnel", "remote"), default="tunnel")
    parser.add_argument("--longest", type=float, default=40.0, metavar="SECONDS", help="a run's length (40)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("reports/kills"), metavar="DIR")
    asked = parser.parse_args(words)
    chance = random.Random(asked.seed)
    asked.out.mkdir(parents=True, exist_ok=True)
    reports = (asked.out / "runs").absolute()
    wrong = stood = 0
    with Bed.start() as bed:
        for n in range(asked.count):
            fault = asked.only[n % len(asked.only)]
            after_s = None if n // len(asked.only) % 2 == 0 else chance.uniform(0.0, asked.longest)
            kill = kill_once(bed, fault, reports, after_s=after_s, via=asked.via)
            wrong += bool(kill.wrong)
            stood += kill.stood
            clean = "never" if kill.clean_after_s is None else f"{kill.clean_after_s:.1f} s"
            where = "the fault stood" if kill.stood else "no fault stood"
            print(
                f"{n + 1}/{asked.count} {kill.fault}, killed {kill.moment} ({where}): clean after {clean}, "
                f"judge exit {kill.judged} {kill.wrong}",
                flush=True,
            )
        last = whole_run(bed, reports, via=asked.via)
        left = bed.leftovers()
    print(f"{asked.count} kills, {stood} while a fault stood, {wrong} wrong; a whole run afterwards: exit {last}")
    return int(wrong > 0 or last != 0 or bool(left))
