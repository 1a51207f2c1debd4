"""Every test of this folder runs on asyncio's loop and, where it is installed, on uvloop's."""

from tests.upstream.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
