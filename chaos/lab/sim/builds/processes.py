"""Bugs of ranks and their processes."""

from __future__ import annotations

import asyncio

from chaos.lab.sim.builds.build import Build
from chaos.lab.sim.builds.storm import StormyDecode
from chaos.lab.sim.control import ControlLoop
from chaos.lab.sim.frontend import Frontend


class RankAborts(StormyDecode):
    """The first rank's process ends by std::abort, as a NCCL watchdog ends it."""

    def on_storm(self) -> None:
        """At its next turn."""
        self.rank.group.abort()


class ConstantHealth(Frontend):
    """`/health` asks no scheduler (SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=false)."""

    health_generates = False


class DivergingRanks(StormyDecode):
    """After an abort storm the last tensor-parallel rank runs another batch than the others: all wait."""

    def on_storm(self) -> None:
        """They part at the next turn, and the watchdog ends the server when its time is over."""
        if self.rank.tp_size > 1:
            self.rank.group.diverge()
            loop = asyncio.get_running_loop()
            loop.call_later(self.clocks.watchdog_s, self._watchdog)

    def _watchdog(self) -> None:
        seconds = round(self.clocks.watchdog_s / self.settings.time_scale)
        for log in self.logs:
            log(f"Scheduler watchdog timeout (self.watchdog_timeout={seconds}, self.soft=False)")
        asyncio.get_running_loop().call_later(self.clocks.watchdog_grace_s, self.end_server)


class UnhandledBehindFirst(ControlLoop):
    """Only the control threads of data-parallel ranks behind the first one do not know ABORT."""

    def on_abort(self, frames: list[bytes]) -> None:
        """The first rank, which health checks see, is well."""
        if self.dp:
            self.on_guarded(frames)
        else:
            super().on_abort(frames)


BUILDS = (
    Build(
        name="scheduler-dead-parent-alive",
        about="an abort storm ends decode's scheduler process by std::abort; its parent lives, /health says 200",
        version="0.5.16",
        upstream="sgl-project/sglang #18421, #18582, #21486",
        decode=RankAborts,
        frontend=ConstantHealth,
        watches_ranks=False,
    ),
    Build(
        name="one-rank-dead",
        about="with --set dp=2: the first ABORT ends the control thread of every data-parallel rank but the first",
        version="0.5.14",
        upstream="sgl-project/sglang PR #30352 (one rank of several; the shape of vllm-project/vllm #45453)",
        fixed_in="0.5.16",
        control=UnhandledBehindFirst,
        prefill_reports_running=False,
    ),
    Build(
        name="rank-desync",
        about="with --set tp=2: after an abort storm decode's ranks wait for each other until the watchdog ends it",
        version="0.5.16",
        upstream="sgl-project/sglang PR #27164 (the shape of #34572, #34569)",
        decode=DivergingRanks,
    ),
)
