"""Request bodies of the three generation APIs, read as the engine reads them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from chaos.lab.sim.kv import tokenize
from chaos.lab.sim.request import Api, Req

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MAX_TOKENS = 128


class BadRequestError(Exception):
    """The body is refused with 400; `logged` says that the engine logs it, too."""

    def __init__(self, message: str, *, logged: bool = False) -> None:
        super().__init__(message)
        self.logged = logged


def read_request(api: Api, body: object, *, context_len: int) -> Req:
    """A request from a decoded JSON body; BadRequestError says what is wrong with it."""
    if not isinstance(body, dict):
        raise BadRequestError("Input should be a valid dictionary")
    fields: dict[str, object] = body
    rid = fields.get("rid") or uuid.uuid4().hex
    if not isinstance(rid, str):
        raise BadRequestError("rid must be a string; batches are not served")
    options = fields.get("sampling_params") if api is Api.GENERATE else fields
    if not isinstance(options, dict):
        options = {}
    names = ("max_new_tokens",) if api is Api.GENERATE else ("max_completion_tokens", "max_tokens")
    max_tokens = next((options[name] for name in names if options.get(name) is not None), DEFAULT_MAX_TOKENS)
    if not isinstance(max_tokens, int) or max_tokens < 0:
        raise BadRequestError(f"max_new_tokens must be at least 0, got {max_tokens}.")
    if options.get("n") not in (None, 1):
        raise BadRequestError("n > 1 is not served in PD mode")
    tokens = tokenize(_prompt(api, fields))
    if not tokens:
        raise BadRequestError("The input is empty")
    if len(tokens) >= context_len:
        raise BadRequestError(
            f"The input ({len(tokens)} tokens) is longer than the model's context length ({context_len} tokens)."
        )
    usage = fields.get("stream_options")
    return Req(
        rid=rid,
        api=api,
        stream=bool(fields.get("stream", False)),
        tokens=tokens,
        max_new_tokens=max(1, min(max_tokens, context_len - len(tokens))),
        bootstrap_room=_room(fields, rid),
        bootstrap_host=_text(fields.get("bootstrap_host")),
        bootstrap_port=_integer(fields.get("bootstrap_port")),
        include_usage=isinstance(usage, dict) and bool(usage.get("include_usage")),
    )


def _room(fields: Mapping[str, object], rid: str) -> int:
    room = fields.get("bootstrap_room")
    if isinstance(room, int) and not isinstance(room, bool) and 0 <= room < 1 << 63:
        return room
    raise BadRequestError(
        f"Invalid request: Disaggregated request received without bootstrap room id. req.rid={rid!r}", logged=True
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _prompt(api: Api, fields: Mapping[str, object]) -> str:
    match api:
        case Api.CHAT:
            messages = fields.get("messages")
            if not isinstance(messages, list) or not messages:
                raise BadRequestError("messages must be a non-empty list")
            return " ".join(_message(message) for message in messages) + " <assistant>"
        case Api.COMPLETIONS:
            given = fields.get("prompt")
        case Api.GENERATE:
            given = fields.get("text") if fields.get("text") is not None else fields.get("input_ids")
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(isinstance(token, int) for token in given):
        return " ".join(f"<{token}>" for token in given)
    raise BadRequestError("Either a text or a list of token ids should be provided; batches are not served.")


def _message(message: object) -> str:
    if not isinstance(message, dict):
        raise BadRequestError("a message must be an object")
    content = message.get("content")
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return f"<{message.get('role', 'user')}> {content or ''}"
