"""Messages of asyncio and aiohttp go into the proxy's log, and not to stderr on the event loop."""

from __future__ import annotations

import json
import logging

import pytest

from tests.serving.proxied import WEATHER, proxied


@pytest.mark.parametrize(("name", "level"), [("asyncio", "warning"), ("aiohttp.server", "error")])
async def test_a_librarys_message_is_a_line_with_its_place_and_without_its_words(
    name: str, level: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with proxied(WEATHER, "http://127.0.0.1:9") as proxy:
        try:
            raise ValueError("secret one")
        except ValueError:
            logging.getLogger(name).log(logging.getLevelName(level.upper()), "secret %s", "two", exc_info=True)
        lines = [json.loads(line) for line in proxy.log.getvalue().splitlines()]

    (line,) = [line for line in lines if line["message"] == "Library message"]
    assert (level, name, "ValueError") == (line["level"], line["logger"], line["error"])
    assert "test_library_log.py" in line["place"]
    assert "secret" not in json.dumps(line)
    assert "" == capfd.readouterr().err


async def test_nothing_is_left_behind_at_the_end() -> None:
    before = {name: list(logging.getLogger(name).handlers) for name in ("asyncio", "aiohttp")}
    async with proxied(WEATHER, "http://127.0.0.1:9"):
        during = {name: len(logging.getLogger(name).handlers) for name in before}

    assert {name: len(handlers) + 1 for name, handlers in before.items()} == during
    assert before == {name: logging.getLogger(name).handlers for name in before}
