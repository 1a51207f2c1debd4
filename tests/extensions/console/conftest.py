"""One browser for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.extensions.console.browser import browser


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    """A running browser."""
    with browser() as started:
        yield started
