"""The suites of `Upstream` run on asyncio's loop and, if it is installed, on uvloop's: they buffer differently."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from tests.steady import make_loop

_BOTH_LOOPS: Final = ("test_upstream.py", "test_hostile_upstream.py")


@pytest.hookimpl
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops, by the name that a test's id contains."""
    if item.path.name not in _BOTH_LOOPS or importlib.util.find_spec("uvloop") is None:
        return {"asyncio": make_loop}
    import uvloop

    return {"asyncio": make_loop, "uvloop": uvloop.new_event_loop}
