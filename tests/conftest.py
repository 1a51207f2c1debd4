"""Settings of all tests: property tests try the same examples every time, and a slow machine fails none of them."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from hypothesis import settings

from proxy.config.files import fast_structure
from tests.generated import examples
from tests.steady import make_loop

# A run that fails on one machine fails on all; fresh examples are tried with `pytest --hypothesis-profile=default`.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=examples(100))
settings.load_profile("repeatable")

# A process of tests loads thousands of configs: the whole schema, written once, is then the quicker one.
fast_structure.ENABLED = False

# The proxy's default ports: two tests that run side by side cannot both have them.
DEFAULT_PORTS: Final = frozenset({8080, 8081, 9091})


def _refuse_default_ports(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.bind" and isinstance(arguments[1], tuple) and arguments[1][1] in DEFAULT_PORTS:
        raise PermissionError(f"port {arguments[1][1]} is everybody's: `listen: 127.0.0.1:0`, `admin: off`")


sys.addaudithook(_refuse_default_ports)


# Seconds for one test of the generated sets, the real parties and the copies of the code.
LONGEST_LARGE: Final = 1200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allows long tests more time than the default of pyproject.toml."""
    for item in items:
        is_long = any(item.get_closest_marker(name) for name in ("large", "locks"))
        if is_long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_LARGE))


def pytest_sessionstart() -> None:
    """Stops the garbage collector while pytest collects tests: looking through them again and again takes a tenth of
    each worker's start."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on there is garbage; what was collected is left out."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of every test and fixture; a room may say another."""
    return {"asyncio": make_loop}
