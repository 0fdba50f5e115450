"""JSON Schema of the file kinds, for editors. It agrees with the loader on everything one value can show.

Beyond it, and checked by the loader only: names that refer to each other, values that contradict each other
(`chaos.model.checks`, `target_checks`), whether a pack's pattern compiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from chaos.model.observations import Observations
from chaos.model.pack import Pack
from chaos.model.scenario import Scenario
from chaos.model.target import Target
from chaos.model.units import DURATION_PATTERN

if TYPE_CHECKING:
    from chaos.model.section import Section

Kind = Literal["scenario", "target", "pack", "observations"]
KINDS: dict[Kind, type[Section]] = {"scenario": Scenario, "target": Target, "pack": Pack, "observations": Observations}


def json_schema(kind: Kind) -> dict[str, Any]:
    """The schema (draft 2020-12) of a file kind."""
    schema = _tidied(KINDS[kind].model_json_schema(by_alias=True))
    assert isinstance(schema, dict)  # noqa: S101 - for the type checker
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"pdchaos {kind}",
    }


def _tidied(node: Any, *, under: str = "") -> Any:
    """Without nulls (the loader wants a value for every key), and with keys that match no pattern refused."""
    if isinstance(node, list):
        return [_tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    if under in ("properties", "$defs"):  # names of fields and sections, not words of JSON Schema
        return {name: _tidied(item) for name, item in node.items()}
    out = {key: _tidied(value, under=key) for key, value in node.items() if key != "title"}
    options = [option for option in out.pop("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        out = {**options[0], **out}
    elif options:
        out["anyOf"] = options
    if "patternProperties" in out:
        out["additionalProperties"] = False
    if out.get("default", ...) is None or isinstance(out.get("default"), dict):
        del out["default"]
    elif out.get("pattern") == DURATION_PATTERN and "default" in out:
        out["default"] = f"{out['default']:g}s"
    return out
