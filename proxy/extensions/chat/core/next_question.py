"""The request by which a model is asked again: the first one, with the refused turn and a result for each of its calls.

The APIs require a result for every call: a refused one gets feedback, a valid one gets a note that it has not run and
should be repeated. The usage of all answers is summed as the last one reports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions.chat.core.model_request import Api, ModelRequest

REPEAT: Final = (
    "This call is valid, but it was not run, because another call of the same turn is not. Send it again, unchanged, "
    "together with the corrected one."
)


# The members of a request that limit the length of an answer.
_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
# The members of a message that go back to a server. Others go back if the request has them in earlier messages: some
# servers need them, and strict ones refuse them.
_GO_BACK: Final = frozenset({"role", "content", "tool_calls", "reasoning_content"})


def is_cut_off(api: Api, answer: JsonValue) -> bool:
    """Returns whether an answer ended at its limit."""
    if not isinstance(answer, dict):
        return False
    if api is not Api.CHAT:
        return answer.get("stop_reason") == "max_tokens" or answer.get("status") == "incomplete"
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(choice, dict) and choice.get("finish_reason") == "length"


def write_next_question(
    request: ModelRequest, answer: JsonValue, results: Sequence[tuple[str, str]], *, is_cut: bool = False
) -> bytes | None:
    """The body of the next request. `results` are the id of each call of the answer, and its text. `is_cut`: the answer
    ended at its limit, which is doubled. None if the calls cannot be answered: one of them has no id, or the answer has
    several choices."""
    if not isinstance(answer, dict) or not all(call_id for call_id, _ in results):
        return None
    if request.api is Api.CHAT and (len(_as_list(answer.get("choices"))) != 1 or not request.is_single):
        return None
    larger = {key: 2 * limit for key in _LIMITS if is_cut and type(limit := request.body.get(key)) is int}
    return dumps({**request.body, **larger, **_ADDERS[request.api](request.body, answer, results)})


def _add_to_chat(
    body: Mapping[str, Any], answer: Mapping[str, Any], results: Sequence[tuple[str, str]]
) -> dict[str, JsonValue]:
    earlier = [each for each in _as_list(body.get("messages")) if isinstance(each, dict)]
    known = _GO_BACK.union(*(each for each in earlier if each.get("role") == "assistant"))
    message = _make_readable(answer["choices"][0]["message"], known)
    result_messages = [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results]
    return {"messages": [*_as_list(body.get("messages")), message, *result_messages]}


def _make_readable(message: dict[str, JsonValue], known: Set[str]) -> dict[str, JsonValue]:
    """The message as a server reads it: with known members, and with arguments that are JSON (`{}` for others)."""
    calls = [_make_call_readable(call) for call in _as_list(message.get("tool_calls"))]
    return {"role": "assistant", **{key: message[key] for key in message if key in known}, "tool_calls": calls}


def _make_call_readable(call: JsonValue) -> JsonValue:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments")
    text = arguments.encode("utf-8", "surrogatepass") if isinstance(arguments, str) else b""
    is_readable = not isinstance(parse(text), JsonProblem)
    call = {key: inner for key, inner in call.items() if key != "index"}
    return call if is_readable else {**call, "function": {**function, "arguments": "{}"}}


def _add_to_responses(
    body: Mapping[str, Any], answer: Mapping[str, Any], results: Sequence[tuple[str, str]]
) -> dict[str, JsonValue]:
    question = body.get("input")
    first = [{"role": "user", "content": question}] if isinstance(question, str) else _as_list(question)
    outputs = [{"type": "function_call_output", "call_id": call_id, "output": text} for call_id, text in results]
    if body.get("conversation"):  # the server has stored the question and the answer
        return {"input": outputs}
    items = [each for each in _as_list(answer.get("output")) if not (body.get("store") is False and _is_lost(each))]
    return {"input": [*first, *items, *outputs]}


def _is_lost(item: JsonValue) -> bool:
    """Returns whether an item of a response that is not stored names reasoning that only the server has."""
    return isinstance(item, dict) and item.get("type") == "reasoning" and not item.get("encrypted_content")


def _add_to_messages(
    body: Mapping[str, Any], answer: Mapping[str, Any], results: Sequence[tuple[str, str]]
) -> dict[str, JsonValue]:
    blocks = [
        {"type": "tool_result", "tool_use_id": call_id, "is_error": True, "content": text} for call_id, text in results
    ]
    turn = [{"role": "assistant", "content": answer.get("content")}, {"role": "user", "content": blocks}]
    return {"messages": [*_as_list(body.get("messages")), *turn]}


_ADDERS: Final = {Api.CHAT: _add_to_chat, Api.RESPONSES: _add_to_responses, Api.MESSAGES: _add_to_messages}


def _as_list(value: JsonValue) -> list[Any]:
    return value if isinstance(value, list) else []


def sum_usage(one: JsonValue, other: JsonValue) -> JsonValue:
    """Two reports of usage as one: whole numbers are added, member by member; anything else is that of the second."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: sum_usage(one.get(key), other[key]) if key in other else one[key] for key in {**other, **one}}
    if type(one) is int and type(other) is int:
        return one + other
    return other


def count_tokens(usage: JsonValue) -> int:
    """The tokens of a usage report, by the field names of any of the APIs."""
    if not isinstance(usage, dict):
        return 0
    named = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    return sum(value for key in named if type(value := usage.get(key)) is int)
