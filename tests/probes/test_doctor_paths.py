"""What `pdchaos doctor` says of a path that does not answer, and of a log that stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from probe_helpers import ModelServer
from test_probe_discover import PACKS, PLAN, ROUTER, Deployment

from chaos.engine.doctor import paths
from chaos.engine.doctor.row import State
from chaos.engine.hosts import Hosts
from chaos.engine.ports import SystemClock
from chaos.engine.probes import discover, make_http
from chaos.model.scenario import Scenario
from chaos.model.target import LogFrom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from chaos.engine.doctor import Row


async def examined(
    model: ModelServer, tmp_path: Path, progress: Callable[[str], None] = lambda _: None
) -> dict[tuple[str, str], Row]:
    """Rows by where and what, of a deployment whose logs nobody writes to."""
    log = tmp_path / "silent.log"
    log.touch()
    asking = paths.setup(PLAN, "doctor-1", Scenario(version=1, name="doctor"))
    async with Deployment(router={**ROUTER, "v1__chat__completions": model}).up() as bare, make_http() as http:
        router, prefill = (
            one.model_copy(update={"log": [LogFrom(file=str(log))]}) for one in (bare.router, bare.prefill[0])
        )
        target = bare.model_copy(update={"router": router, "prefill": [prefill]})
        found = await discover(target, PACKS, PLAN, http=http, clock=SystemClock(), hosts=Hosts.here(target))
        rows = await paths.look(found, asking, http=http, progress=progress)
    return {(row.where, row.what): row for row in rows}


async def test_a_path_that_does_not_answer_is_told_as_what_was_seen_and_not_as_our_hanging_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "patience_s", lambda _: 0.2)
    monkeypatch.setattr(paths, "TOLD_EVERY_S", 0.15)
    monkeypatch.setattr(paths, "LOGGED_S", 0.0)
    said: list[str] = []
    row = (await examined(ModelServer(), tmp_path, said.append))["routed", "canary"]
    assert (State.PROBLEM, "no answer within 0.2 s") == (row.state, row.said)
    assert "sending one canary on routed; an answer may take up to 0.2 s" == said[0]
    assert ["no answer yet on routed (0.15 s of 0.2 s)", "waiting 0 s for the logs to tell of them"] == said[1:]


def test_a_path_is_waited_for_on_the_engines_own_clocks() -> None:
    long, short = (msgspec.structs.replace(PLAN, recover_within_s=seconds) for seconds in (600.0, 0.5))
    assert (600.0, paths.LEAST_PATIENCE_S) == (paths.patience_s(long), paths.patience_s(short))


async def test_a_log_that_stays_as_it_is_may_be_mended_but_a_routers_may_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "LOGGED_S", 0.0)
    model = ModelServer()
    model.gate.set()
    rows = await examined(model, tmp_path)
    assert State.OK is rows["routed", "canary"].state
    router, prefill = (rows[node, "log grows"] for node in ("router-0", "prefill-0"))
    assert (State.NOTE, State.NOTE, "") == (router.state, prefill.state, router.fix)
    assert "did not grow while requests were made" in router.said
    assert prefill.fix
