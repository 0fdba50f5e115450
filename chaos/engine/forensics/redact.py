"""Keeps secrets out of a folder that people attach to bug reports.

Two lines of defence: by name (an environment variable, an argument, a field that calls itself a key) and by value
(whatever was found under such a name is removed wherever else it stands, in logs and stacks too).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from chaos.engine.secrets import MIN_SECRET, REDACTED
from chaos.model.headers import SECRET_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NOT_SAVED = "[not saved]"
ENGINE_PREFIXES = (
    "CUDA_", "DISAGG", "DYN_", "FLASHINFER_", "GLOO_", "HF_HUB_", "HIP_", "IB_", "LANG", "LC_", "LD_", "MC_",
    "MOONCAKE_", "NCCL_", "NIXL_", "NVSHMEM_", "OMP_", "PATH", "PDCHAOS_", "PYTHON", "RANK", "RAY_", "ROCM_", "SGL_",
    "SGLANG_", "TORCH", "TRITON_", "UCX_", "VIRTUAL_ENV", "VLLM_", "WORLD_SIZE", "ZMQ_",
)  # fmt: skip
"""Variables that say how an engine runs. Of all others only the names are saved."""

_NO_SECRET = re.compile(r"tokeniz|^(?:none|null|true|false|[-+\d.,e]*)$", re.IGNORECASE)
_WORDS = (
    r"(?:api|access|private|secret|ssh|signing)[_-]?key|secret|passw(?:or)?d|credentials?|cookie|"
    r"(?:auth|access|bearer|hf|hub|api|session|refresh|id|admin)[_-]?token"
)
_ASSIGNED = re.compile(
    rf"""(?P<name>[\w.-]*(?:{_WORDS})[\w-]*)(?P<sign>(?:\\?["'])?\s*[:=]\s*(?:\\?["'])?|\s+(?=\S))(?P<value>[^\s"'\\,;)}}\]]+)""",
    re.IGNORECASE,
)
_SUSPECT = re.compile(r"key|token|secret|passw|credential|cookie|bearer|basic|@", re.IGNORECASE)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}")
_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@:]+(?::[^\s/@]*)?@")
_ARGUMENT = re.compile(r"^(--?[A-Za-z][\w.-]*)(?:=(.*))?$", re.DOTALL)


class Redactor:
    """Knows secrets and removes them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = {secret for secret in secrets if len(secret) >= MIN_SECRET}

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """An environment in which only what concerns the engine has values, and nothing that calls itself a secret."""
        shown = {}
        for name, value in sorted(env.items()):
            if SECRET_NAME.search(name):
                if not _NO_SECRET.search(value):
                    self._learn(value)
                shown[name] = REDACTED
            else:
                shown[name] = self.text(value) if name.startswith(ENGINE_PREFIXES) else NOT_SAVED
        return shown

    def arguments(self, words: Sequence[str]) -> list[str]:
        """A command line without the values of arguments that call themselves secrets."""
        shown: list[str] = []
        hide_next = False
        for word in words:
            named = _ARGUMENT.match(word)
            if hide_next and not named:
                self._learn(word)
                shown.append(word if _NO_SECRET.search(word) else REDACTED)
                hide_next = False
                continue
            secret = bool(named) and self.secret_name(named[1] if named else "")
            value = named[2] if named else None
            hide_next = secret and value is None
            if named and secret and value is not None and not _NO_SECRET.search(value):
                self._learn(value)
                shown.append(f"{named[1]}={REDACTED}")
            else:
                shown.append(self.text(word))
        return shown

    def value(self, value: object) -> object:
        """A decoded JSON document without the texts of fields that call themselves secrets."""
        match value:
            case dict():
                return {str(name): self._field(str(name), inner) for name, inner in value.items()}
            case list():
                return [self.value(inner) for inner in value]
            case str():
                return self.text(value)
            case _:
                return value

    def text(self, text: str) -> str:
        """Any text, without what looks like a secret and without every secret met so far."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, REDACTED)
        # Line by line, and only lines that may need it: a pattern at work on a whole log would hold the interpreter.
        return "".join(_line(line) if _SUSPECT.search(line) else line for line in text.splitlines(keepends=True))

    @staticmethod
    def secret_name(name: str) -> bool:
        """Whether something of this name is a secret."""
        return bool(SECRET_NAME.search(name)) and not re.search("tokeniz", name, re.IGNORECASE)

    def _field(self, name: str, inner: object) -> object:
        if isinstance(inner, str) and self.secret_name(name) and not _NO_SECRET.search(inner):
            self._learn(inner)
            return REDACTED
        return self.value(inner)

    def _learn(self, secret: str) -> None:
        if len(secret) >= MIN_SECRET and not _NO_SECRET.search(secret):
            self._secrets.add(secret)


def _line(line: str) -> str:
    line = _BEARER.sub(rf"\1 {REDACTED}", line)
    line = _USER.sub(rf"\1{REDACTED}@", line)
    return _ASSIGNED.sub(_hide, line)


def _hide(found: re.Match[str]) -> str:
    spaced = not found["sign"].strip()
    if _NO_SECRET.search(found["value"]) or "tokeniz" in found["name"].lower():
        return found[0]
    if found["value"].startswith(REDACTED[:-1]):
        return found[0]
    if spaced and not found["name"].startswith("-"):
        return found[0]  # prose: "secret sharing failed"
    return f"{found['name']}{found['sign']}{REDACTED}"
