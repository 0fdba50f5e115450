"""A run that is green in everything and does not prove that its fault landed is never healthy, whatever the fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
import pytest
from build import Play, plan

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.actions import ACTIONS
from chaos.model.loading import parse_pack, parse_scenario, parse_target
from chaos.model.outcomes import Answer, Outcome
from chaos.model.plan import resolve_plan
from chaos.model.scenario import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXAMPLES: dict[str, tuple[dict[str, Any], ...]] = {
    "kill": ({"group": "agents"},),
    "signal": ({"where": {"role": "decode"}, "send": "STOP"},),
    "restart": ({"where": {"role": "decode"}}, {"where": {"role": "decode"}, "as": "other"}),
    "partition": ({"where": {"role": "decode"}, "from": {"role": "prefill"}},),
    "loss": ({"where": {"role": "decode"}, "from": {"role": "prefill"}, "percent": 10.0},),
    "rate": ({"where": {"role": "prefill"}, "to": {"role": "decode"}, "rate": 1e6},),
    "delay": ({"where": {"role": "prefill"}, "to": {"role": "decode"}, "delay": 0.1},),
    "port_block": ({"where": {"role": "prefill"}, "port": "bootstrap", "from": {"role": "decode"}},),
    "foreign_frame": ({},),
    "abort_frame": ({},),
    "poison": ({"kind": "n2"},),
    "sham": ({}, {"group": "agents"}),
}
"""What each action of the scenario language needs at least. A new action without an example is red."""

SCENARIO = parse_scenario("{version: 1, name: proof, load: [{name: agents}]}", "s.yaml")
TARGET = parse_target(
    """
    {version: 1, name: t, router: {url: "http://h:1"}, prefill: [{url: "http://h:2"}], decode: [{url: "http://h:3"}],
     environment: staging, allow: []}
    """,
    "t.yaml",
)
PACK = parse_pack("{version: 1, name: engine}", "p.yaml")


class Way(NamedTuple):
    """One way to break something, as it would stand in a scenario, and as a run would plan it."""

    name: str
    planned: ev.PlannedFault

    def stage(self, stage: ev.Stage, *, ok: bool = True, measured: bool = True, fault: str = "") -> ev.FaultStep:
        """One stage of its life."""
        return ev.FaultStep(
            t_ns=0,
            fault=fault or self.planned.id,
            kind=self.planned.kind,
            stage=stage,
            ok=ok,
            measured={"seen": "what was meant"} if measured else {},
        )

    @property
    def hits_clients(self) -> bool:
        """Whether it hits our own clients, and so is a wave."""
        return self.planned.kind == "kill"


def ways() -> Iterator[Way]:
    """Every action with every choice that its model offers; standing, and undone after a time."""
    for action in ACTIONS:
        model = Step.model_fields[action].annotation.__args__[0]
        choices = {
            field.alias or name: get_args(field.annotation)
            for name, field in model.model_fields.items()
            if get_origin(field.annotation) is Literal
        }
        for example in EXAMPLES.get(action, ()):
            for name, values in (choices or {"": ("",)}).items():
                for value in values:
                    for lasts in (None, 10.0):
                        what = example | ({name: value} if name else {})
                        step = Step.model_validate({"id": "fault", "at": 0.0, "for": lasts, action: what}, strict=True)
                        planned = resolve_plan(SCENARIO.model_copy(update={"timeline": [step]}), TARGET, PACK).faults
                        told = [action, str(value), "as" if "as" in what else "", "for" if lasts else ""]
                        yield Way("-".join(filter(None, told)), planned[0])


def whole(way: Way) -> Iterator[ev.AnyEvent]:
    """Everything that proves that it landed."""
    if way.hits_clients:
        yield ev.WaveFired(t_ns=0, wave=way.planned.id, how=way.planned.how, ordered_ns=0, sessions=60, sockets=60)
    yield from (way.stage("planned"), way.stage("applied"), way.stage("verified"))
    if way.planned.lasts_s is not None:
        yield from (way.stage("reverted"), way.stage("revert-verified"))


def nothing(_way: Way) -> Iterator[ev.AnyEvent]:
    yield from ()


def only_meant(way: Way) -> Iterator[ev.AnyEvent]:
    yield way.stage("planned")


def given_up(way: Way) -> Iterator[ev.AnyEvent]:
    yield from (way.stage("planned"), way.stage("applied", ok=False, measured=False))


def not_applied_and_yet_verified(way: Way) -> Iterator[ev.AnyEvent]:
    yield from (way.stage("planned"), way.stage("applied", ok=False), way.stage("verified"))


def said_and_not_measured(way: Way) -> Iterator[ev.AnyEvent]:
    yield from (e for e in whole(way) if not (isinstance(e, ev.FaultStep) and e.stage == "verified"))


def verified_without_a_measurement(way: Way) -> Iterator[ev.AnyEvent]:
    for event in whole(way):
        bare = isinstance(event, ev.FaultStep) and event.stage == "verified"
        yield way.stage("verified", measured=False) if bare else event


def measured_to_be_otherwise(way: Way) -> Iterator[ev.AnyEvent]:
    for event in whole(way):
        other = isinstance(event, ev.FaultStep) and event.stage == "verified"
        yield way.stage("verified", ok=False) if other else event


def proof_of_something_else(way: Way) -> Iterator[ev.AnyEvent]:
    for event in whole(way):
        yield way.stage(event.stage, fault="another") if isinstance(event, ev.FaultStep) else event


def only_the_shot(way: Way) -> Iterator[ev.AnyEvent]:
    yield from (event for event in whole(way) if isinstance(event, ev.WaveFired))


def undone_and_not_measured(way: Way) -> Iterator[ev.AnyEvent]:
    yield from (e for e in whole(way) if not (isinstance(e, ev.FaultStep) and e.stage == "revert-verified"))


def measured_to_stand_still(way: Way) -> Iterator[ev.AnyEvent]:
    yield from undone_and_not_measured(way)
    yield way.stage("revert-verified", ok=False)


LACKS = (
    nothing,
    only_meant,
    given_up,
    not_applied_and_yet_verified,
    said_and_not_measured,
    verified_without_a_measurement,
    measured_to_be_otherwise,
    proof_of_something_else,
)
LACKS_OF_CLIENTS = (only_the_shot,)
LACKS_OF_TIMED = (undone_and_not_measured, measured_to_stand_still)
WAYS = tuple(ways())
CASES = [
    pytest.param(way, lack, id=f"{way.name} {lack.__name__}")
    for way in WAYS
    for lack in (
        *LACKS,
        *(LACKS_OF_CLIENTS if way.hits_clients else ()),
        *(LACKS_OF_TIMED if way.planned.lasts_s is not None else ()),
    )
]


def green(way: Way, proof: Callable[[Way], Iterator[ev.AnyEvent]], *, waiting: int = 24) -> list[ev.AnyEvent]:
    """A run in which everything is well, with so much proof of its fault."""
    told = Play(plan=plan(faults=(way.planned,))).baseline().load()
    told.tell(ev.WaveCensus(t_ns=0, wave=way.planned.id, phases={"waiting": waiting, "streaming": 60 - waiting}))
    for event in proof(way):
        if isinstance(event, ev.WaveFired):
            at = told.ns(told.now)
            told.tell(msgspec.structs.replace(event, ordered_ns=at, first_ns=at, last_ns=at))
            continue
        if isinstance(event, ev.FaultStep) and event.stage == "reverted":
            told.go(5)
        told.tell(event)
    return told.phase("recovery").go(14).finish()


def test_every_action_has_an_example():
    assert set(ACTIONS) == set(EXAMPLES)


@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
def test_a_green_run_that_proves_its_fault_is_healthy(way):
    verdict = judge(green(way, whole))
    assert (Outcome.HEALTHY, Answer.YES) == (verdict.outcome, verdict.waves[0].landed), verdict.headline


@pytest.mark.parametrize(("way", "lack"), CASES)
def test_a_green_run_without_proof_of_its_fault_is_inconclusive(way, lack):
    verdict = judge(green(way, lack))
    assert Outcome.INCONCLUSIVE == verdict.outcome, verdict.headline
    assert any(wave.wave == way.planned.id and wave.landed is not Answer.YES for wave in verdict.waves)


@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
def test_a_green_run_whose_fault_missed_its_aim_is_inconclusive(way):
    aim = (ev.Bound(name="waiting", op=">=", value=20),)
    aimed = Way(way.name, msgspec.structs.replace(way.planned, aim=aim))
    assert Outcome.HEALTHY == judge(green(aimed, whole, waiting=24)).outcome
    verdict = judge(green(aimed, whole, waiting=3))
    assert (Outcome.INCONCLUSIVE, Answer.NO) == (verdict.outcome, verdict.waves[0].landed)
