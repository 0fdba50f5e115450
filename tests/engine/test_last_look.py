"""A run says at its end what it left on its hosts, and what nobody knows."""

from __future__ import annotations

import pytest

from chaos.engine.cleaning import Doubt, last_look
from chaos.engine.hosts import Here, HostLost, Hosts
from chaos.model.outcomes import Cleanup

RUN = "0badcafe"


class Saying(Here):
    """A host whose sweep finds what it is told, or that does not answer."""

    def __init__(self, *found: tuple[str, str, str] | None) -> None:
        self.found = found
        self.asked = 0

    async def call(self, op: str, /, **args: object) -> object:
        assert ("sweep", True) == (op, args["dry"])
        self.asked += 1
        if None in self.found:
            raise HostLost("the connection is down")
        return [
            {"kind": kind, "run": run, "what": what, "lives": True, "gone": False, "why": ""}
            for kind, run, what in self.found
        ]


def hosts(prefill: Saying, decode: Saying) -> Hosts:
    return Hosts({"prefill-0": prefill, "decode-0": decode}, decode)


FREEZE = Doubt("freeze", ("prefill-0",), 60.0)
TOLD = (
    "freeze: the host of prefill-0 does not answer; within 60 s it heals itself, and `pdchaos sweep` shows what is left"
)


@pytest.mark.parametrize(
    ("prefill", "known", "doubts", "wanted"),
    [
        ((), [], [], (Cleanup.CLEAN, "")),
        ((("fault", "another", "x"), ("process", RUN, "pid 5")), [], [], (Cleanup.CLEAN, "")),
        (
            (("fault", RUN, "cut"), ("qdisc", RUN, "htb 7db1: of eth0")),
            [],
            [],
            (
                Cleanup.DIRTY,
                "on the host of prefill-0: fault cut; on the host of prefill-0: qdisc htb 7db1: of eth0",
            ),
        ),
        ((), ["cut: it stays"], [], (Cleanup.DIRTY, "cut: it stays")),
        ((None,), [], [], (Cleanup.CLEAN, "")),
        ((None,), [], [FREEZE], (Cleanup.UNKNOWN, TOLD)),
        ((None,), ["cut: it stays"], [FREEZE], (Cleanup.DIRTY, f"cut: it stays; {TOLD}")),
        ((), [], [FREEZE], (Cleanup.CLEAN, "")),
        ((("fault", RUN, "freeze"),), [], [FREEZE], (Cleanup.DIRTY, "on the host of prefill-0: fault freeze")),
    ],
)
async def test_what_is_left_is_told_and_what_nobody_knows_is_not_clean(
    prefill: tuple, known: list[str], doubts: list[Doubt], wanted: tuple[Cleanup, str]
) -> None:
    there = hosts(Saying(*prefill), Saying())
    assert wanted == await last_look(RUN, there, known=known, doubts=doubts, look=True)


async def test_nobody_is_asked_where_nothing_was_done() -> None:
    one, two = Saying(("fault", RUN, "cut")), Saying()
    assert (Cleanup.CLEAN, "") == await last_look(RUN, hosts(one, two), known=[], doubts=[], look=False)
    assert 0 == one.asked + two.asked


async def test_what_nothing_takes_back_by_itself_is_said() -> None:
    variant = Doubt("other", ("prefill-0",), None)
    cleanup, told = await last_look(RUN, hosts(Saying(None), Saying()), known=[], doubts=[variant], look=True)
    assert (Cleanup.UNKNOWN, True) == (cleanup, "nothing there takes it back" in told)


async def test_a_host_that_kept_the_lock_is_doubt_and_it_is_said_what_becomes_of_it() -> None:
    one, two = Saying(), Saying()
    cleanup, told = await last_look(RUN, hosts(one, two), known=[], doubts=[], look=False, locked=[two])
    assert Cleanup.UNKNOWN is cleanup
    assert told.startswith("the host of decode-0 did not take this run's lock back; within 120 s it runs out")
    assert Cleanup.DIRTY is (await last_look(RUN, hosts(one, two), known=["x"], doubts=[], look=False, locked=[two]))[0]
