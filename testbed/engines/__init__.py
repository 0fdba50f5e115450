"""Which engine runs on a bed's hosts: the embedded lab, or a real one as its lab would start it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.errors import BedError

if TYPE_CHECKING:
    from testbed.engines.kind import Engine
    from testbed.plan import Plan


def engine_of(plan: Plan) -> Engine:
    """The engine of a bed. Imported when it is wanted: a host needs one of them, and not quickly all of them."""
    kind, build = plan.kind, plan.lab.partition("@")[2]
    if kind == "sim":
        from testbed.engines.sim import Sim  # noqa: PLC0415

        return Sim(plan, build)
    if kind == "sglang":
        from testbed.engines.sglang import SGLang  # noqa: PLC0415

        return SGLang(plan, build)
    if kind == "dynamo":
        from testbed.engines.dynamo import Dynamo  # noqa: PLC0415

        return Dynamo(plan, build)
    raise BedError(f"a bed cannot run {plan.lab!r}", hint="sim@BUILD, sglang@VERSION or dynamo@VERSION")
