"""Headers of our requests: plain text, or a secret that is looked up when it is needed and written down nowhere."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, WithJsonSchema

from chaos.model.section import SecretRef, Section
from chaos.model.units import Matching, wrong

RESERVED_HEADERS = ("authorization", "connection", "content-length", "content-type", "host", "transfer-encoding")
"""Headers the load client writes itself. Keys come by reference (`api_key`), so that no secret is in a scenario."""
SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth|cookie|private", re.IGNORECASE)
"""How things are called whose values are secrets."""


def _header_name(value: str) -> str:
    if value.lower() in RESERVED_HEADERS:
        raise wrong("is a header that pdchaos writes itself", "for keys there is `api_key`")
    return value


def _any_case(word: str) -> str:
    return "".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in word)


_RESERVED_PATTERN = "^(?!(?:" + "|".join(map(_any_case, RESERVED_HEADERS)) + ")$)"
HeaderName = Annotated[
    str,
    Matching(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$", "a header name"),
    AfterValidator(_header_name),
    WithJsonSchema({"type": "string", "pattern": _RESERVED_PATTERN + r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"}),
]
HeaderText = Annotated[str, Matching(r"^[\x20-\x7e]{0,4000}$", "one line of ASCII text")]


class HeaderValue(Section):
    """What a header says: `text` as it is (in a file a plain text is one), or the `secret` behind a reference."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("text", "secret")], "maxProperties": 1}
    )

    text: HeaderText | None = None
    secret: SecretRef | None = None


def _header(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


def _one_of_both(value: HeaderValue) -> HeaderValue:
    if (value.text is None) == (value.secret is None):
        raise wrong("must have exactly one of text, secret")
    return value


Headers = dict[
    HeaderName,
    Annotated[
        HeaderValue,
        BeforeValidator(_header, json_schema_input_type=HeaderText | HeaderValue),
        AfterValidator(_one_of_both),
    ],
]
