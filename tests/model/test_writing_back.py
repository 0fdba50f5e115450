"""A loaded file can be written and loaded again: run folders hold what was really run, overrides and all."""

from __future__ import annotations

import json

import pytest
import yaml
from model_samples import FULL_SCENARIO, FULL_TARGET, PACK

from chaos.model.loading import parse_pack, parse_scenario, parse_target
from chaos.model.units import format_duration, parse_duration


@pytest.mark.parametrize(
    ("parse", "text"), [(parse_scenario, FULL_SCENARIO), (parse_target, FULL_TARGET), (parse_pack, PACK)]
)
def test_what_was_loaded_is_the_same_after_writing_and_loading(parse, text: str) -> None:
    model = parse(text, "f.yaml")
    plain = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert model == parse(json.dumps(plain), "f.json")
    assert model == parse(yaml.safe_dump(plain, sort_keys=False), "f.yaml")


def test_a_watch_limit_is_written_with_its_unit() -> None:
    scenario = parse_scenario("version: 1\nname: a\nobserve: {at_most: 2m}\n", "s.yaml")
    assert "120s" == scenario.model_dump(mode="json")["observe"]["at_most"]


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.001, 2.5, 60.0, 3600.0, 1e8, 1 / 3])
def test_a_duration_survives_being_written(seconds: float) -> None:
    assert pytest.approx(seconds, abs=1e-9) == parse_duration(format_duration(seconds))
