"""What holds for all tests: property tests try the same examples every time, and a slow machine fails none of them."""

from __future__ import annotations

from hypothesis import settings

from tests.generated import examples

# A run that fails on one machine fails on all; fresh examples are tried with `pytest --hypothesis-profile=default`.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=examples(100))
settings.load_profile("repeatable")
