"""The attack on filtered answers, in small: `python -m tests.attacks answers` tries more."""

from __future__ import annotations

import pytest

from tests.attacks import filtered_answers
from tests.generated import examples


@pytest.mark.parametrize("seed", [11, 12])
def test_finds_no_answer_that_is_broken_too_long_or_shows_a_masked_value(seed: int) -> None:
    tries = examples(400)
    found = filtered_answers.attack(seed, tries)

    assert [] == found.findings
    assert found.through > tries // 4
