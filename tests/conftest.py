"""What holds for all tests: property tests try the same examples every time, and a slow machine fails none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from hypothesis import settings

from tests.generated import examples
from tests.steady import make_loop

# A run that fails on one machine fails on all; fresh examples are tried with `pytest --hypothesis-profile=default`.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=examples(100))
settings.load_profile("repeatable")


@pytest.hookimpl(trylast=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of every test and fixture; a room may say another."""
    return {"asyncio": make_loop}
