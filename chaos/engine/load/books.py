"""Every request of an agent accounted for, and what it told of itself: as events, or as evidence that is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.engine.load import messages as msg
    from chaos.engine.owners import Owners
    from chaos.engine.ports import Clock, Emit

SILENT_S = 15.0
"""Thirty beats missed in a row: whatever its users did meanwhile, or that they did nothing, nobody saw."""
WAY = "our own way to the router's host broke"
NOTICED_NS = 500_000_000
"""A request that broke with the way may be told of before the way is known to be broken."""


class Books:
    """The account of one agent. `heard_ns` is when it last told how it fares, on our clock."""

    def __init__(
        self,
        group: str,
        *,
        emit: Emit,
        clock: Clock,
        owners: Owners | None = None,
        broke: Callable[[int, int], bool] | None = None,
    ) -> None:
        """`broke` tells whether the way that its requests take broke between two moments."""
        self.heard_ns: int | None = None
        self.open: dict[str, msg.Start] = {}
        """Requests sent and not yet ended, by their names."""
        self._group = group
        self._src = f"agent:{group}"
        self._emit = emit
        self._clock = clock
        self._owners = owners
        self._broke = broke

    @property
    def silent_long(self) -> bool:
        """Whether nothing was heard for twice as long as makes lost evidence, for we may be late."""
        return self.heard_ns is not None and self._clock.now_ns() - self.heard_ns > 2 * SILENT_S * 1e9

    def started(self, start: msg.Start) -> None:
        """A request was sent."""
        self.open[start.req] = start
        self._emit(
            ev.RequestStarted(
                t_ns=self._clock.now_ns(),
                src=self._src,
                src_t_ns=start.t,
                req=start.req,
                kind="load",
                path=start.path,
                intended_ns=start.intended,
                sent_ns=start.sent,
                group=self._group,
                session=start.session,
                round=start.round,
                api=start.api,
                words=start.words,
            )
        )

    def ended(self, end: msg.End) -> None:
        """A request ended, as its agent saw it; when our own way to it broke, that is what ended it."""
        self.open.pop(end.req, None)
        ours = end.error and end.ended_by in ("error", "server") and self._broke_under(end)
        self._emit(
            ev.RequestEnded(
                t_ns=self._clock.now_ns(),
                src=self._src,
                src_t_ns=end.t,
                req=end.req,
                kind="load",
                path=end.path,
                sent_ns=end.sent,
                first_ns=end.first,
                last_ns=end.last,
                tokens=end.tokens,
                gaps=end.gaps,
                status=end.status,
                finish=end.finish,
                error="way" if ours else end.error,
                detail=WAY if ours else end.detail,
                ended_by="harness" if ours else end.ended_by,
                group=self._group,
                session=end.session,
                round=end.round,
                prompt_tokens=end.prompt_tokens,
                mute=end.mute,
                content=end.content,
                whose=self._owners.request(end.whose) if self._owners and end.whose else "",
            )
        )

    def end_all(self, *, error: str, detail: str, by: ev.EndedBy) -> None:
        """The process took its open requests with it."""
        now = self._clock.now_ns()
        for start in self.open.values():
            self._emit(
                ev.RequestEnded(
                    t_ns=now,
                    src=self._src,
                    req=start.req,
                    kind="load",
                    path=start.path,
                    sent_ns=start.sent,
                    last_ns=now,
                    error=error,
                    detail=detail,
                    ended_by=by,
                    group=self._group,
                    session=start.session,
                    round=start.round,
                )
            )
        self.open.clear()

    def fares(self, beat: msg.Beat) -> None:
        """It told how it fares."""
        self.tell_silence(beat.t)
        self.heard_ns = beat.t
        self._emit(
            ev.HarnessHealth(
                t_ns=self._clock.now_ns(),
                src=self._src,
                src_t_ns=beat.t,
                who=self._src,
                lag_max_ms=beat.lag_max_ms,
                lag_p99_ms=beat.lag_p99_ms,
                open_files=beat.open_files,
                intended=beat.intended,
                delivered=beat.delivered,
                tokens=beat.tokens,
                completed=beat.completed,
                failed=beat.failed,
                phases=beat.phases,
            )
        )

    def tell_silence(self, until_ns: int | None = None) -> bool:
        """Say so when it told nothing of itself for too long, until now if not given.

        It was stopped, or it hung, and its users with it.

        By its own stamps, so that beats which we read late are not missed; a shorter lag a late beat tells itself.
        """
        until_ns = self._clock.now_ns() if until_ns is None else until_ns
        if self.heard_ns is None or until_ns - self.heard_ns <= SILENT_S * 1e9:
            return False
        self.lost("the agent gave no sign of life", from_ns=self.heard_ns, to_ns=until_ns)
        return True

    def lost(self, cause: str, *, from_ns: int | None = None, to_ns: int | None = None) -> None:
        """What its users met between two moments, which both are now when not given, nobody saw."""
        now = self._clock.now_ns()
        to_ns = now if to_ns is None else to_ns
        from_ns = to_ns if from_ns is None else min(from_ns, to_ns)
        self._emit(ev.EvidenceLost(t_ns=now, probe=self._src, from_ns=from_ns, to_ns=to_ns, cause=cause))

    def _broke_under(self, end: msg.End) -> bool:
        sent_ns = end.t if end.sent is None else end.sent
        return self._broke is not None and self._broke(sent_ns, end.t + NOTICED_NS)
