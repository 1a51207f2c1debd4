"""A scripted chat endpoint on a real socket, and a proxy that asks it, for the tests of corrections."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from proxy.call_record import CallRecord
from proxy.extensions.correction.core.words import CorrectionQuestion
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import JSON_TYPE, Script, Seen, Tool, answer, replies, tool

# The proxy sees its clients go, and need not wait for their last words.
_SEEN_TO_GO = 0.01

# The keys of a tool's route that switch both layers on.
BOTH = "{validation_feedback: on, semantic_retry: on}"


def completion(content: Any, finish_reason: str = "stop", **usage: int) -> bytes:
    """A chat completion whose one choice says `content` (a text, or JSON to be written as one). `usage`: its tokens."""
    text = content if isinstance(content, str) else json.dumps(content)
    message = {"role": "assistant", "content": text}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [
        {"index": 0, "message": message, "finish_reason": finish_reason}
    ]} | ({"usage": usage} if usage else {})  # fmt: skip
    return answer("200 OK", json.dumps(body).encode(), JSON_TYPE)


def says(*contents: Any) -> Script:
    """A script of completions, the last one for ever."""
    return replies(*map(completion, contents))


def failed(status: str, code: str, message: str, category: str, *, retryable: bool = True, **details: str) -> bytes:
    """A tool's error in GoMind's envelope."""
    error = {"code": code, "message": message, "category": category, "retryable": retryable, "details": details}
    return answer(status, json.dumps({"success": False, "error": error}).encode(), JSON_TYPE)


@dataclass
class Rig:
    """A proxy between an agent, a tool and a model endpoint; `records` are those of finished requests."""

    proxy: Proxied
    tool: Tool
    model: Tool
    records: list[CallRecord]

    @property
    def record(self) -> CallRecord:
        """The last finished request."""
        return self.records[-1]

    def asked(self) -> list[dict[str, Any]]:
        """The requests that reached the endpoint."""
        return [json.loads(seen.body) for seen in self.model.seen]

    def prompts(self) -> list[str]:
        """Returns what each of them said, system and user together."""
        return ["\n".join(message["content"] for message in request["messages"]) for request in self.asked()]

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The last request's events: name and attributes."""
        return [(event.name, dict(event.attributes)) for event in self.record.events]

    def outcomes(self) -> list[tuple[str, str]]:
        """(layer, outcome) of the last request's questions."""
        return [(question.layer.value, question.outcome.value) for question in self.questions()]

    def questions(self) -> list[CorrectionQuestion]:
        """The last request's questions."""
        return [question for question in self.record.questions if isinstance(question, CorrectionQuestion)]


class _Keeper:
    """An observer that keeps records."""

    def __init__(self) -> None:
        self.records: list[CallRecord] = []

    def finished(self, record: CallRecord) -> None:
        """Keeps one."""
        self.records.append(replace(record))


@contextlib.asynccontextmanager
async def rig(model: Script, tools: Script, routes: str, /, *, endpoint: str = "", **keys: str) -> AsyncIterator[Rig]:
    """Everything, started; `endpoint` holds further keys of `correction`."""
    async with tool(tools) as upstream, tool(model) as asked:
        headers = "{set: {authorization: Bearer model-key-of-ours}}"
        usual = {
            "upstreams": f'{{tools: {{url: "{upstream.url}"}}, model: {{url: "{asked.url}", headers: {headers}}}}}',
            "correction": f"{{upstream: model, model: tiny{', ' if endpoint else ''}{endpoint}}}",
        }
        async with proxied(routes, **(usual | keys)) as proxy:
            keeper = _Keeper()
            proxy.serving.handler.observers = (*proxy.serving.handler.observers, keeper)
            yield Rig(proxy, upstream, asked, keeper.records)
            await asyncio.sleep(_SEEN_TO_GO)


def same(one: Seen, other: Seen) -> bool:
    """Returns whether two answers are the same bytes, but for what names the request and the moment."""
    own = ("x-request-id", "date")
    return (one.start, one.body, [pair for pair in one.headers if pair[0] not in own]) == (
        other.start, other.body, [pair for pair in other.headers if pair[0] not in own],
    )  # fmt: skip
