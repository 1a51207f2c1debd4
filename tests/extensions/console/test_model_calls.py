"""The page "Calls" shows model calls next to tool calls, with the model's name, and can show those of one model
only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.extensions.chat.answers import chat_answer, chat_request, whole
from tests.extensions.console.browser import browser, page, wait_until
from tests.extensions.console.served import ADMIN, ROUTES, Served, served
from tests.serving.wire import replies, tool

pytestmark = pytest.mark.large


@contextmanager
def model_server() -> Iterator[str]:
    """A model that first calls wrongly, and then so that it is repaired."""
    answers = [whole(chat_answer(text)) for text in ('{"days": 3}', '{"city": "Oslo", "days": "3"}')]
    urls: list[str] = []
    loop, begun = asyncio.new_event_loop(), asyncio.Event()
    end = asyncio.Event()

    async def serve() -> None:
        async with tool(replies(*answers)) as server:
            urls.append(server.url)
            begun.set()
            await end.wait()

    thread = Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(begun.wait(), loop).result(30)
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def test_a_models_calls_are_shown_with_its_name_and_found_by_it(tmp_path: Path) -> None:
    with model_server() as url, served(tmp_path, ADMIN, ROUTES) as (started, _), browser() as running:
        started.write(
            started.text.replace("upstreams: {", f'upstreams: {{llm: {{url: "{url}"}}, ')
            + "  - {path: /v1, upstream: llm, model: {retries: 1}}\n"
        )
        started.ask("/-/reload", {})
        started.call({"text": "tea", "at": "2026-12-01T09:00:00Z"})
        answer: Any = json.loads(started.send("/v1/chat/completions", chat_request()))
        assert {"city": "Oslo", "days": 3} == json.loads(
            answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
        )
        look_for_calls(started, running)


def look_for_calls(started: Served, running: Any) -> None:
    with page(running) as shown:
        shown.goto(started.link())
        shown.get_by_role("heading", name="Overview").wait_for()
        shown.goto(started.link(view="#/calls"))
        wait_until(shown, "document.querySelectorAll('.call').length === 2")
        names = shown.locator(".call span:nth-child(2)").evaluate_all("all => all.map(one => one.textContent)")
        assert ["get_weather (tiny)", "add_reminder"] == names
        shown.get_by_label("search", exact=True).fill("model:tiny")
        shown.keyboard.press("Enter")
        wait_until(shown, "location.hash.includes('model=tiny') && document.querySelectorAll('.call').length === 1")
        shown.locator(".call").click()
        shown.get_by_text("answered 2 times, 15 tokens for asking again").wait_for()
        shown.get_by_text("Answer 1, after which the model was asked again (15 tokens)").wait_for()
        shown.get_by_text("get_weather /city").wait_for()
        read = shown.locator(".open pre").last.inner_text()
        assert "Validation failed for tool 'get_weather' (attempt 1/2)" in read
