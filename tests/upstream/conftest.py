"""Every test of this folder runs on asyncio's loop and, if it is installed, on uvloop's."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping

from tests.steady import make_loop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops, by the name that a test's id contains."""
    if importlib.util.find_spec("uvloop") is None:
        return {"asyncio": make_loop}
    import uvloop

    return {"asyncio": make_loop, "uvloop": uvloop.new_event_loop}
