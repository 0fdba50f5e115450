"""The way out of a run: teardown → idle → last canaries. Who cannot wait takes another one (`leaving.py`).

To hang up on a request is a fault of its own, so whatever is open gets all the time that can still teach something.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from chaos.engine.scene import POLL_S
from chaos.engine.stopping import Stop
from chaos.judge import floors_settle_ns, in_vain_s, unsettled_floors

if TYPE_CHECKING:
    from chaos.engine.scene import Scene

LOST_DRAIN_S = 3.0
"""Once a target is known not to answer, waiting for its answers teaches nothing."""
LOST_AFTER_S = 5.0
"""Not a token, not an answer for this long, while canaries are overdue: it does not answer any more."""
DRAIN_MARGIN_S = 5.0
USERS_HANG_MARGIN_S = 1.0
FLOORS_PATIENCE_S = 20.0
"""A /metrics that takes seconds to answer may leave an idle phase without a reading after the gauge lag."""


async def way_out(scene: Scene, *, recovered: bool, stopped: str) -> str:
    """Drain, an idle minute without probes, one last canary per path. Returns why it was cut short, if it was.

    `recovered` tells whether every path serves; `stopped` why the run was asked to stop before, if it was.
    """
    kit, forensics, interrupt = scene.kit, scene.forensics, scene.setup.interrupt
    or_leave = scene.stopping.or_leave
    if not (recovered or stopped):
        seen = scene.recovery()
        forensics.request("not-recovered" if seen.disrupted else "not-serving", ", ".join(seen.lacking))
    scene.enter("teardown", stopped)
    for give_up in kit.before_rest:
        await give_up()
    patience_s = _patience_s(scene, recovered=recovered)
    if interrupt.gentle.is_set() and not kit.fleet.over:
        interrupt.waits(patience_s)
    hung_up = await or_leave(kit.fleet.drain(patience_s, hopeless=partial(_users_hang, scene)))
    if not stopped and recovered and hung_up:
        await or_leave(_clear_up(scene))
    if not stopped and recovered and (hung_up or not scene.recovery().recovered):
        # Requests that never ended had to be hung up on, which is a disturbance of our own: show once more, past
        # the aborts that it made, that every path serves.
        await or_leave(scene.watch())
    if not stopped:
        scene.enter("idle")
        kit.probes.pause_for_idle()
        if recovered:
            forensics.look("end")
        try:
            await scene.stopping.or_stop(_stay_idle(scene, for_floors=recovered))
        except Stop as stop:
            stopped = str(stop)
    scene.enter("last-canaries", stopped if scene.seen.facts.phase_start("idle") else "")
    kit.probes.resume()
    await or_leave(kit.probes.last(scene.plan.canary_deadline_s))
    await or_leave(forensics.settle())
    await or_leave(kit.probes.finish())
    return stopped


def _patience_s(scene: Scene, *, recovered: bool) -> float:
    """How long open requests may take to end before we hang up, which is a fault of its own.

    Not having recovered is not the same as not answering: a busy target still gets its time. Where some requests
    hang for good beside others that pass, they get as long as the engine's own timeouts would need to end them.
    """
    patience_s = max((group.timeout for group in scene.setup.scenario.load), default=0.0) + DRAIN_MARGIN_S
    if recovered and not scene.recovery().failing:
        return patience_s
    silent = scene.since(scene.seen.pulse.last_ns) > LOST_AFTER_S
    return LOST_DRAIN_S if silent else min(patience_s, scene.plan.watch_s)


def _users_hang(scene: Scene) -> bool:
    """Whether every open request of users waits in vain for longer than the engine's own timeouts allow."""
    return scene.since(scene.seen.pulse.users_ns) > in_vain_s(scene.seen.facts) + USERS_HANG_MARGIN_S


async def _clear_up(scene: Scene) -> None:
    """After hanging up on users: leave nothing of ours open that hangs, too, and have every gauge written anew.

    What a queue still holds then is not ours. Paths that lead over what we took down are asked no more.
    """
    plan = scene.plan
    await scene.kit.probes.give_up([path.path for path in scene.recovery().paths])
    await scene.sleep(plan.quiet_s + plan.canaries_in_a_row * plan.canary_interval_s)


async def _stay_idle(scene: Scene, *, for_floors: bool) -> None:
    """Be idle as long as planned, and longer while queues have not shown floors that tell something.

    A starved machine may not have answered yet, a queue may still drain, and what is above its floor may be
    something that the engine's own timeout frees. Where a path is stuck no floor tells anything.
    """
    facts = scene.seen.facts
    await scene.sleep(scene.plan.idle_s)
    settled_ns = max(scene.now_ns(), floors_settle_ns(facts))
    while for_floors and unsettled_floors(facts) and scene.since(settled_ns) < FLOORS_PATIENCE_S:
        await scene.sleep(POLL_S)
