"""Request bodies: deterministic from (seed, group, session, round), every session with a prefix of its own.

The prefix defeats prefix caches between sessions: a cached prompt needs no prefill and no transfer, so it would test
nothing. Later rounds of a session carry its earlier prompts and answers, as an agent's growing context does.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from .codec import dumps
from .codeword import ROOM_TOKENS, request

if TYPE_CHECKING:
    from .config import Config

# Short common words: about one token each for the tokenizers in use.
_COMMON = (
    "air all and ask back ball bank base be bed bird blue boat body book box boy bread bring brown build bus buy call"
    " camp car case cat chair city class clean clear cloud coat cold come cook corn cost cry cup cut dark day deep desk"
    " dog door down draw dream dress drink drive dry duck ear earth east eat egg end eye face fall far farm fast feed"
    " field fill film find fire fish five flat floor flow fly food foot form four free fresh front fruit full game gate"
    " girl give glass go gold good grass gray green group grow hair half hand hard hat head heat help high hill hold"
    " home horse hot house ice iron job join jump just keep key kind king lake land last late lead leaf left leg let"
    " light line list long look low made make man map mark meet milk mind moon more move much name near neck new next"
    " night nine north nose note oil old one open out over page paint pair paper park part path pay pen pick place"
    " plan plant play point pool port press pull push rain read red rest rice ride ring rise river road rock roll roof"
    " room root rose run sail salt sand say sea seat see seed sell send set ship shoe shop short show side sign sing"
    " sit six size skin sky sleep slow small snow soft soil song sound south speak spring stand star stay step stone"
    " stop store storm sun swim table tail take talk tall team tell ten test that thin think time top town tree trip"
    " true turn two voice wait walk wall warm wash watch water way wear week well west wheel white wide wind wing wood"
    " word work year yes young"
)
_WORDS = _COMMON.split()

_PREFIX_WORDS = 8  # what the hexadecimal prefix costs in tokens, about


def prompt(seed: int, group: str, session: int, round_: int, tokens: int) -> str:
    """A text of about `tokens` tokens that starts differently for every (seed, group, session, round)."""
    key = f"{seed}/{group}/{session}/{round_}"
    prefix = hashlib.sha256(key.encode()).hexdigest()[:16]
    words = random.Random(key).choices(_WORDS, k=max(1, tokens - _PREFIX_WORDS))
    return f"{prefix} {' '.join(words)}"


class Conversation:
    """The growing context of one session."""

    def __init__(self, config: Config, session: int) -> None:
        self._config = config
        self._session = session
        self._turns: list[tuple[str, str]] = []
        self.owner = ""  # of the codeword that the last question asks for; none where an answer is too short for it

    @property
    def ours(self) -> str:
        """What the owners of this session's codewords begin with."""
        return f"{self._config.owner}-{self._session}-"

    @property
    def words(self) -> int:
        """How many words the questions in the context have: an engine counts about as many tokens, or more."""
        return sum(text.count(" ") + 1 for role, text in self._turns if role == "user")

    def ask(self, round_: int, rid: str = "") -> bytes:
        """The body of this round's request, with its id if it is to carry it; what was asked stays in the context."""
        config = self._config
        tokens = config.prompt_tokens
        self.owner = ""
        if config.owner is not None and config.max_tokens >= ROOM_TOKENS:
            self.owner = f"{self.ours}{round_}"
            tokens -= ROOM_TOKENS
        asked = prompt(config.seed, config.group, self._session, round_, tokens)
        if self.owner:
            asked += " " + request(config.run, self.owner)
        self._turns.append(("user", asked))
        body = self._body()
        if rid:
            body["rid"] = rid
        return dumps(body)

    def answered(self, text: str) -> None:
        """Add what the model answered."""
        if text:
            self._turns.append(("assistant", text))

    def failed(self) -> None:
        """Forget the last question: an agent asks anew rather than keep a question that nobody answered."""
        self._turns.pop()

    def _body(self) -> dict[str, object]:
        config = self._config
        if config.api == "generate":
            return {
                "text": "\n".join(text for _, text in self._turns),
                "sampling_params": {
                    "max_new_tokens": config.max_tokens,
                    "temperature": config.temperature,
                    "ignore_eos": config.ignore_eos,
                },
                "stream": config.stream,
            }
        body: dict[str, object] = {} if config.model is None else {"model": config.model}
        if config.api == "chat":
            body["messages"] = [{"role": role, "content": text} for role, text in self._turns]
        else:
            body["prompt"] = "\n".join(text for _, text in self._turns)
        body["max_tokens"] = config.max_tokens
        body["temperature"] = config.temperature
        body["ignore_eos"] = config.ignore_eos
        body["stream"] = config.stream
        if config.stream:
            body["stream_options"] = {"include_usage": True}
        return body
