"""The work for an event of a stream depends on that event, not on what has passed or is held.

Nothing is timed: work is the lines of Python that run and the bytes that they allocate, both counted.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from proxy.core.json.contentcoding import EventSplitter
from proxy.core.model.values import UpstreamReply
from proxy.extensions.chat.core.events import read_event
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.streamed_calls import HeldCalls
from proxy.extensions.chat.core.streamed_text import HeldText
from proxy.extensions.chat.core.text_watch import TextWatch
from proxy.extensions.chat.server.judged_stream import JudgedStream, StreamSteps
from tests.extensions.chat.streams import chat_stream, chat_words, responses_stream

EVENTS = 4_000
HELD = '<tool_call>{"name": "get_weather", "arguments": '
# A model's text -> the first delta, and each further one.
TEXTS = {
    "words": ("", "plain words "),
    "HTML": ("", '<div class="a"><b>x</b></div>'),
    "signs that begin": ("", "<|tool<<[<"),
    "blank lines": ("", "\n"),
    "thinking": ("<think>", "a</think"),
    "thoughts": ("", "<think>a</think>\n"),
    "a held text": (HELD + '{"city": "', "y"),
}


def count_work(take: Callable[[Any], object], parts: Sequence[Any]) -> tuple[int, int]:
    """The lines that run and the bytes that are allocated while these parts are taken."""
    lines = allocated = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    tracemalloc.start()
    try:
        for part in parts:
            tracemalloc.reset_peak()
            at_first = tracemalloc.get_traced_memory()[0]
            take(part)
            allocated += tracemalloc.get_traced_memory()[1] - at_first
        sys.settrace(trace)
        for part in parts[:100]:
            take(part)
    finally:
        sys.settrace(before)
        tracemalloc.stop()
    return lines, allocated


def check_linear(take: Callable[[Any], object], first: Any, rest: Sequence[Any]) -> None:
    """Checks that the second half of the parts costs what the first half does."""
    take(first)
    half = len(rest) // 2
    (early_lines, early_bytes), (late_lines, late_bytes) = count_work(take, rest[:half]), count_work(take, rest[half:])
    assert late_lines <= 1.2 * early_lines + 10
    assert late_bytes <= 1.5 * early_bytes + 10_000


@pytest.mark.parametrize("why", TEXTS)
def test_text_costs_the_same_however_much_has_passed(why: str) -> None:
    text = HeldText(Api.CHAT, TextWatch())
    first, *rest = chat_words([TEXTS[why][0], *[TEXTS[why][1]] * EVENTS])[1:-2]
    check_linear(lambda event: text.take(event, read_event(event)), first, rest)
    assert why.startswith("a held") == (text.size > 100_000)


@pytest.mark.parametrize("write", [chat_stream, responses_stream])
def test_arguments_cost_the_same_however_many_are_held(write: Callable[..., list[bytes]]) -> None:
    api = Api.CHAT if write is chat_stream else Api.RESPONSES
    events, held = write(["yy"] * (EVENTS + 10)), HeldCalls(api)
    for event in events[:5]:
        held.take(event, read_event(event))
    check_linear(lambda event: held.take(event, read_event(event)), events[5], events[6 : EVENTS + 6])
    assert held.is_holding


def test_calls_cost_the_same_however_many_are_held() -> None:
    held = HeldCalls(Api.RESPONSES)
    items = [{"type": "function_call", "id": f"f{at}", "call_id": f"c{at}", "name": "a"} for at in range(EVENTS)]
    values = [{"type": "response.output_item.done", "output_index": at, "item": each} for at, each in enumerate(items)]
    check_linear(lambda value: held.take(b"data: {}\n\n", value), values[0], values[1:])
    assert EVENTS == len(held.list_calls())


def test_a_long_event_costs_the_same_however_much_of_it_has_come() -> None:
    splitter = EventSplitter()
    check_linear(splitter.feed, b"data: ", [b"x" * 100] * EVENTS)
    assert splitter.size > 100 * EVENTS


def test_a_watch_keeps_nothing_of_the_text_that_has_passed() -> None:
    watch = TextWatch()
    tracemalloc.start()
    try:
        watch.feed("<div>[1]``<think>")
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1_000):
            watch.feed("<div>[1]``<think>" * 100)
        assert tracemalloc.get_traced_memory()[0] - before < 5_000
    finally:
        tracemalloc.stop()


def make_stream() -> tuple[Callable[[bytes], object], list[bytes]]:
    """A stream as the function that takes its next piece, and the list of what has passed."""

    async def find_none(*_: Any) -> Any:
        raise AssertionError("there is no call")

    steps = StreamSteps(find_none, find_none, None, False, lambda *_: None, None)
    stream, passed = JudgedStream(Api.CHAT, UpstreamReply(200, (), b""), steps, 1_000_000_000), list[bytes]()

    def take(piece: bytes) -> None:
        try:
            stream._take(piece).send(None)
        except StopIteration as done:
            passed.append(done.value)

    return take, passed


def test_a_begun_event_is_looked_through_once() -> None:
    check_linear(make_stream()[0], b"data: ", [b"x" * 100] * EVENTS)


def test_text_passes_without_a_look_at_each_event() -> None:
    take, passed = make_stream()
    body = b"".join(chat_words(["plain words "] * 1_000)[1:-2])
    lines, _ = count_work(take, [body])
    assert [body] * 2 == passed
    assert lines < 100
