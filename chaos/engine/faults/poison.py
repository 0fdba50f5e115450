"""Requests that some engines do not survive: sent to the router as any client could send them.

They are no load and no canary: what becomes of them is journaled under a kind of its own. The fault has landed once
each of them was answered, was refused, or has hung for as long as the step says. What hangs is left open while the run
watches, because hanging up is another fault, and hung up on before the deployment is at rest: what the engine keeps
holding then is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from chaos.agent import codeword
from chaos.engine.faults.census import tell_census
from chaos.engine.faults.life import Fault, Measured, NotApplied
from chaos.engine.probes.answers import Answer
from chaos.engine.probes.exchange import exchange, fresh_prompt, request_body
from chaos.engine.probes.http import TRANSPORT_ERRORS
from chaos.model import events as ev

if TYPE_CHECKING:
    from types import TracebackType

    from chaos.engine.faults.kit import Asking, FaultKit
    from chaos.model.faults import Poison
    from chaos.model.scenario import Step

GROUP = "poison"
MAX_TOKENS = 8
LONG_WORDS = 200_000
"""Longer than the contexts of most models, where the target does not tell its own."""
OVER_WORDS = 64
"""More than the context by little: far too long a prompt is refused at the door (sglang#30233 took a few tokens)."""
HUGE_WORDS = 500_000
ASK_S = 10.0


class _Card(msgspec.Struct):
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Card] = []


class PoisonFault(Fault):
    """Some requests of one kind of poison, all at once."""

    def __init__(self, step: Step, kit: FaultKit, *, cycle: int = 1) -> None:
        super().__init__(step, kit, cycle=cycle)
        self._sent: dict[asyncio.Task[None], Answer] = {}

    @property
    def poison(self) -> Poison:
        """What the step says."""
        assert self.step.poison is not None  # noqa: S101 - the registry sees to it
        return self.step.poison

    async def apply(self) -> Measured:
        """Send them."""
        asking, poison = self.kit.asking, self.poison
        url = asking.urls.get(poison.api) if asking else None
        if asking is None or url is None or self.kit.http is None:
            raise NotApplied(f"nothing says where the router takes requests for {poison.api}")
        words = await self._words(asking)
        self.kit.before_rest.append(self._hang_up)
        tell_census(self.step, self.kit, self.kit.fleet.census(), self.kit.clock.now_ns())
        for number in range(1, poison.count + 1):
            req = f"poison-{self.step.id}-{self.cycle}-{number:06d}"
            answer = Answer()
            task = asyncio.create_task(self._ask(asking, url, req, words, answer))
            self._sent[task] = answer
        return Measured(ok=True, facts={"requests": str(poison.count), "kind": poison.what, "words": str(words)})

    async def verify(self) -> Measured:
        """How each of them ended, or that it hangs."""
        done, hanging = await asyncio.wait(self._sent, timeout=self.poison.wait)
        ends = Counter(_how(self._sent[task]) for task in done)
        facts = {how: str(number) for how, number in sorted(ends.items())}
        facts["hanging"] = str(len(hanging))
        reached = len(hanging) + sum(number for how, number in ends.items() if how != "not sent")
        return Measured(bool(reached), facts, "" if reached else "not one of them reached the router")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open."""
        await self._hang_up()
        await super().__aexit__(kind, error, trace)

    # ------------------------------------------------------------------------------------ inside

    async def _hang_up(self) -> None:
        for task in self._sent:
            task.cancel()
        if self._sent:
            await asyncio.wait(self._sent)

    async def _words(self, asking: Asking) -> int:
        """How many words the prompt has."""
        match self.poison.what:
            case "over-context":
                return await self._context(asking) + OVER_WORDS
            case "n2":
                return 16
            case "empty":
                return 0
            case "tiny":
                return 1
            case "huge":
                return HUGE_WORDS

    async def _context(self, asking: Asking) -> int:
        if not asking.models_url or self.kit.http is None:
            return LONG_WORDS
        try:
            async with asyncio.timeout(ASK_S):
                response = await self.kit.http.get(asking.models_url, headers=dict(self.kit.headers))
            told = [card.max_model_len for card in msgspec.json.decode(response.content, type=_Models).data]
        except (TimeoutError, msgspec.MsgspecError):
            return LONG_WORDS
        except TRANSPORT_ERRORS:
            return LONG_WORDS
        return next((tokens for tokens in told if tokens), LONG_WORDS)

    async def _ask(self, asking: Asking, url: str, req: str, words: int, answer: Answer) -> None:
        kit, clock = self.kit, self.kit.clock
        prompt = " ".join([fresh_prompt(kit.run_id, req).split()[0], *["air"] * (words - 1)]) if words else ""
        body = request_body(
            self.poison.api,
            kit.run_id,
            req,
            model=asking.model,
            max_tokens=MAX_TOKENS,
            prompt=prompt,
            named=asking.named,
            n=2 if self.poison.what == "n2" else 1,
        )
        sent_ns = clock.now_ns()
        kit.emit(
            ev.RequestStarted(
                t_ns=sent_ns,
                src="fault:poison",
                req=req,
                kind="poison",
                path="routed",
                intended_ns=sent_ns,
                sent_ns=sent_ns,
                group=GROUP,
                api=self.poison.api,
                words=words,
            )
        )
        headers = {**kit.headers, "content-type": "application/json", "x-pdchaos-run": kit.run_id}
        assert kit.http is not None  # noqa: S101 - `apply` looked
        try:
            await exchange(kit.http, url, body, headers=headers, answer=answer, clock=clock, answered=lambda: None)
        except asyncio.CancelledError:
            answer.fail("cancelled", "hung up before the deployment was left at rest")
            raise
        finally:
            kit.emit(self._ended(asking, req, sent_ns, answer))

    def _ended(self, asking: Asking, req: str, sent_ns: int, answer: Answer) -> ev.RequestEnded:
        foreign = codeword.owners(self.kit.run_id, answer.text)
        return ev.RequestEnded(
            t_ns=self.kit.clock.now_ns(),
            src="fault:poison",
            req=req,
            kind="poison",
            path="routed",
            sent_ns=sent_ns,
            first_ns=answer.first_ns,
            last_ns=answer.last_ns or self.kit.clock.now_ns(),
            tokens=answer.tokens,
            status=answer.status,
            finish=answer.finish,
            error=answer.error,
            detail=answer.detail,
            content="corrupted" if foreign else "unchecked",
            whose=asking.owners.request(foreign[0]) if foreign else "",
            prompt_tokens=answer.prompt_tokens,
            ended_by="fault" if answer.error == "cancelled" else "server",
            group=GROUP,
        )


def _how(answer: Answer) -> str:
    """How one of them ended, in a word or two."""
    if not answer.error:
        return "answered"
    if answer.error == "status":
        return f"refused with HTTP {answer.status}"
    if answer.error in ("connect", "refused"):
        return "not sent"
    return f"ended as {answer.error}"
