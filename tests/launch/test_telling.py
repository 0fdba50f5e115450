"""What people are told on stderr."""

from __future__ import annotations

import pytest

from chaos.launch.telling import tell
from chaos.model.errors import Refused, Unfit


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            Unfit("a is not there; b is not there", hint="mend it"),
            "2 objections to the target:\n  - a is not there\n  - b is not there\n",
        ),
        (Unfit("a is not there", hint="mend it"), "a is not there\n"),
        (Refused("one; two", hint="mend it"), "one; two\n"),
    ],
)
def test_each_objection_to_a_target_stands_on_a_line_of_its_own(error, told, capsys):
    tell(error)
    assert f"pdchaos: {told}  hint: mend it\n" == capsys.readouterr().err
