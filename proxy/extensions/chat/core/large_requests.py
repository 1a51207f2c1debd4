"""Large requests, read in a child process (call/judging.py): here that would keep others waiting.

reduce_request  the parts of a request that are judged by
extend_request  the next question, made of the whole request
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core.json.jsontext import TRUSTED, dumps, join_frame, parse, split_frame
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions.chat.core.model_request import Api, ModelRequest, read_model_request
from proxy.extensions.chat.core.next_question import write_next_question

REDUCE: Final = "proxy.extensions.chat.core.large_requests:reduce_request"
EXTEND: Final = "proxy.extensions.chat.core.large_requests:extend_request"
_READ: Final = ("model", "stream", "n", "tools", "tool_choice", "parallel_tool_calls")


def reduce_request(payload: bytes, _shared: bytes = b"") -> bytes:
    """A request without its messages; of items only the tools that they bring. Nothing is left of what is no JSON."""
    body = parse(payload, TRUSTED)
    if not isinstance(body, dict):
        return b"" if isinstance(body, JsonProblem) else b"null"
    reduced: dict[str, JsonValue] = {key: body[key] for key in _READ if key in body}
    items = body.get("input")
    if isinstance(items, list):
        reduced["input"] = [{"tools": item["tools"]} for item in items if isinstance(item, dict) and "tools" in item]
    return dumps(reduced)


def write_extending_job(api: Api, body: bytes, answer: JsonValue, results: list[tuple[str, str]]) -> bytes:
    """What `extend_request` takes."""
    return join_frame({"api": api.value, "answer": answer, "results": [list(each) for each in results]}, body)


def extend_request(payload: bytes, _shared: bytes = b"") -> bytes:
    """The body of the next question (next_question.py); nothing where it cannot be asked."""
    head: Any
    head, body = split_frame(payload)
    asked = read_model_request(Api(head["api"]), body)
    if not isinstance(asked, ModelRequest):
        return b""
    results = [(call_id, text) for call_id, text in head["results"]]
    return write_next_question(asked, head["answer"], results) or b""
