"""Whatever can end a request has words that a user understands."""

from __future__ import annotations

import re

from chaos.agent.client import Ended
from chaos.model.failures import FAILURES, failure_words


def test_every_error_of_the_agent_has_words_of_its_own() -> None:
    told = re.search(r"one of: ([\w\s-]+?) \(", Ended.__doc__ or "")
    assert told is not None
    assert set(FAILURES) == set(told[1].split())
    assert "our own way to the target broke" == failure_words("way")


def test_an_error_of_a_newer_format_is_shown_as_it_is() -> None:
    assert "melted" == failure_words("melted")
