"""What counts as a sign of life of the target, and of its users."""

from __future__ import annotations

import pytest

from chaos.engine.pulse import Pulse
from chaos.model import events as ev


def ended(kind: ev.RequestKind, error: str = "") -> ev.RequestEnded:
    return ev.RequestEnded(t_ns=7, req="r", kind=kind, path="routed", error=error)


def asked(kind: ev.RequestKind) -> ev.RequestStarted:
    return ev.RequestStarted(t_ns=7, req="r", kind=kind, path="routed", intended_ns=7)


@pytest.mark.parametrize(
    ("event", "target_ns", "users_ns"),
    [
        pytest.param(ended("canary"), 7, 0, id="a canary was answered"),
        pytest.param(ended("load"), 7, 7, id="a user was answered"),
        pytest.param(ended("load", "reset"), 0, 0, id="a user got an error"),
        pytest.param(asked("load"), 0, 7, id="a user asked"),
        pytest.param(ev.PhaseEntered(t_ns=7, phase="load"), 7, 7, id="nobody could answer before the load began"),
        pytest.param(ev.PhaseEntered(t_ns=7, phase="teardown"), 0, 0, id="our giving up is no answer"),
        pytest.param(asked("canary"), 0, 0, id="a canary asked"),
        pytest.param(ev.HarnessHealth(t_ns=7, who="agent:a", lag_max_ms=0, tokens=3), 7, 7, id="users got tokens"),
        pytest.param(ev.HarnessHealth(t_ns=7, who="agent:a", lag_max_ms=0, tokens=0), 0, 0, id="an agent got none"),
    ],
)
def test_what_is_a_sign_of_life(event: ev.AnyEvent, target_ns: int, users_ns: int) -> None:
    pulse = Pulse()
    pulse.on_event(event)
    assert (target_ns, users_ns) == (pulse.last_ns, pulse.users_ns)


def test_the_same_count_of_tokens_twice_is_no_sign_of_life() -> None:
    pulse = Pulse()
    for t_ns in (1, 2):
        pulse.on_event(ev.HarnessHealth(t_ns=t_ns, who="agent:a", lag_max_ms=0, tokens=3))
    assert (1, 1) == (pulse.last_ns, pulse.users_ns)
