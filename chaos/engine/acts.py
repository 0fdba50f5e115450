"""The order of a run's acts: baseline → (load → waves → recovery → rest)* → the way out.

The one question asked here, "has every path recovered?", is answered by the judge's own rule, so the run stops watching
exactly when the verdict would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.engine.scene import POLL_S
from chaos.engine.stopping import Leave, Stop
from chaos.engine.timeline import Timeline
from chaos.engine.way_out import way_out
from chaos.judge import passes_for, workers_known
from chaos.model.errors import Unfit
from chaos.model.outcomes import RunStatus

if TYPE_CHECKING:
    from chaos.engine.scene import Scene

WARM_S = 90.0
"""How long a target may need until its canaries pass: first requests on a starved CPU took 15 s (real SGLang)."""


@dataclass(frozen=True, slots=True)
class Played:
    """How the acts ended."""

    status: RunStatus
    reason: str = ""
    at_once: bool = False  # a person could not wait


async def play(scene: Scene) -> Played:
    """Baseline, cycles and the way out; a gentle stop takes the way out, too."""
    recovered, stopped = True, ""
    try:
        try:
            scene.forensics.look("baseline")
            await _stand_baseline(scene)
            recovered = await _play_cycles(scene)
        except Stop as stop:
            stopped = str(stop)
        stopped = await way_out(scene, recovered=recovered, stopped=stopped)
    except Leave as why:
        if scene.seen.facts.phase_start("teardown") is None:
            scene.enter("teardown", str(why))
        scene.enter("leaving", str(why))
        return Played(RunStatus.ABORTED, str(why), at_once=True)
    return Played(RunStatus.ABORTED, stopped) if stopped else Played(RunStatus.COMPLETED)


async def _stand_baseline(scene: Scene) -> None:
    """Wait until every path serves and all workers took part; `Unfit` when a path never serves."""
    scene.enter("baseline")
    facts, baseline = scene.seen.facts, scene.seen.baseline
    in_a_row = {path.id: passes_for(path, scene.plan) for path in facts.paths()}
    started_ns = scene.now_ns()
    at_least_s = scene.setup.scenario.observe.baseline * scene.plan.time_scale
    while not (
        baseline.warm(in_a_row) and scene.since(started_ns) >= at_least_s and workers_known(facts, scene.now_ns())
    ):
        if scene.since(started_ns) > WARM_S:
            if baseline.warm(in_a_row):
                return  # which workers take part stays unknown, and the judge says so
            cold = ", ".join(f"{in_a_row[path]} on {path}" for path in baseline.cold(in_a_row))
            raise Unfit(
                f"the target does not serve before anything was broken: canaries in a row never passed ({cold}) "
                f"within {WARM_S:g} s (last: {baseline.last_error or 'nothing came back'})",
                hint="mend the deployment first; the probe log in the journal shows every canary",
            )
        await scene.stopping.or_stop(scene.sleep(POLL_S))


async def _play_cycles(scene: Scene) -> bool:
    """Play the cycles; False when one did not recover (then no further wave is fired)."""
    kit, or_stop = scene.kit, scene.stopping.or_stop
    count = scene.plan.cycles
    for cycle in range(1, count + 1):
        scene.bus.cycle = cycle
        scene.enter("load")
        kit.probes.hurry(on=False)
        await or_stop(kit.fleet.start_groups())
        all_fired = await or_stop(_play_steps(scene, cycle))
        scene.enter("recovery" if scene.recovery().disrupted else "watching")
        kit.probes.hurry(on=True)
        if not await or_stop(scene.watch()):
            return False
        if not all_fired:
            return True  # a trigger that never came once teaches nothing twice
        if cycle < count:
            scene.enter("rest")
            await or_stop(scene.sleep(scene.plan.rest_s))
    if scene.plan.measure_s:
        scene.enter("measuring")
        kit.probes.hurry(on=False)
        await or_stop(scene.sleep(scene.plan.measure_s))
    return True


async def _play_steps(scene: Scene, cycle: int) -> bool:
    steps = scene.setup.scenario.timeline
    if not steps:
        await scene.kit.fleet.finished()
        return True
    return await Timeline(steps, scene.kit, cycle=cycle).play()
