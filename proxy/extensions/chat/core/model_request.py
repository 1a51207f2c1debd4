"""A request to a model server: its API, and the tools against which the calls of the answer are validated.

Only these three requests are read (OpenAI API reference, "Create chat completion" and "Create a model response";
Anthropic API reference, "Create a Message"). Tools of other kinds (Anthropic's `bash_20250124`, namespaces of
Responses) have a name but no schema in the request: their calls are not validated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import field
from enum import StrEnum
from typing import Any, Final

from proxy.core.contract.listed_tool import Unparsed
from proxy.core.json.jsontext import TRUSTED, dumps, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions.mcp.core.listed_tools import ListedTool, Listing


class Api(StrEnum):
    """The API of a request."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


# The end of a path -> its API.
API_PATHS: Final = (
    ("/chat/completions", Api.CHAT),
    ("/responses", Api.RESPONSES),
    ("/v1/messages", Api.MESSAGES),
)  # fmt: skip
# The keys under which requests of any API name tools (Ollama, Gemini, Bedrock), and the ends of paths whose answers
# have no calls all the same.
_TOOL_KEYS: Final = ("tools", "functions", "toolConfig", "tool_config")
_WITHOUT_CALLS: Final = ("count_tokens", "input_tokens", ":countTokens", "tokenize", "apply-template")
# A tool without a schema takes an object of anything.
_ANY_OBJECT: Final[dict[str, JsonValue]] = {"type": "object"}


@value_class
class ModelRequest:
    """A request that names tools. `body` is its JSON value; `streams`: the answer comes as server-sent events. `whole`
    is the text of the request where `body` is only a part of it (whole_bodies.py), else empty; `size` in bytes."""

    api: Api
    body: dict[str, JsonValue] = field(repr=False)
    tools: Listing
    streams: bool
    size: int
    whole: bytes = field(default=b"", repr=False)

    @property
    def model(self) -> str:
        """Returns the model that the request names."""
        named = self.body.get("model")
        return named if isinstance(named, str) else ""

    @property
    def is_later(self) -> bool:
        """Returns whether the calls come in the answers to later requests (Responses)."""
        return self.api is Api.RESPONSES and self.body.get("background") is True

    @property
    def is_single(self) -> bool:
        """Returns whether the answer has one choice."""
        return self.body.get("n") in (None, 1)

    def may_call(self, names: Sequence[str]) -> bool:
        """Returns whether the request allows these tools in one answer: by `tool_choice`, and by whether calls may be
        parallel."""
        choice = self.body.get("tool_choice") or self.body.get("function_call")
        if choice == "none":
            return False
        choice = choice if isinstance(choice, dict) else {}
        alone = self.body.get("parallel_tool_calls") is False or choice.get("disable_parallel_tool_use") is True
        if alone and len(names) > 1:
            return False
        if choice.get("type", "auto") in ("auto", "any"):
            return True
        inner = choice.get("allowed_tools")
        listed = inner.get("tools") if isinstance(inner, dict) else choice.get("tools")
        allowed = {_find_chosen_name(each) for each in (listed if isinstance(listed, list) else [choice])}
        return allowed.issuperset(names)


def _find_chosen_name(choice: JsonValue) -> JsonValue:
    """The name of the tool that an entry of `tool_choice` allows."""
    named = choice.get("function", choice) if isinstance(choice, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    return name if isinstance(name, str) else None


def find_api(method: str, path: str) -> Api | None:
    """The API of a request whose answer may hold calls; None for every other request."""
    if method != "POST":
        return None
    return next((api for end, api in API_PATHS if path.rstrip("/").endswith(end)), None)


def names_tools(path: str, text: bytes) -> bool:
    """Returns whether a request of an API that is not read names tools, so that its answer may hold calls."""
    if path.rstrip("/").endswith(_WITHOUT_CALLS) or not any(b'"%b"' % key.encode() in text for key in _TOOL_KEYS):
        return False
    body = parse(text, TRUSTED)
    return isinstance(body, JsonProblem) or (isinstance(body, dict) and any(body.get(key) for key in _TOOL_KEYS))


def read_model_request(api: Api, text: bytes) -> ModelRequest | JsonProblem | None:
    """A request's body; None if it is not an object or names no tool. Calls of a request that forbids them are read,
    too: not every server keeps to `tool_choice: none`."""
    body = parse(text, TRUSTED)
    if isinstance(body, JsonProblem):
        return body
    if not isinstance(body, dict):
        return None
    tools: dict[str, ListedTool] = {}
    for tool in (*_list_tools(api, body.get("tools")), *_list_functions(api, body.get("functions"))):
        twice = tool.name in tools and tools[tool.name].digest != tool.digest
        tools[tool.name] = _make_unusable(tool.name, tool.digest) if twice else tool
    if not tools:
        return None
    for name in _list_other_names(api, body):
        tools.setdefault(name, _make_unusable(name, ""))
    digest = hashlib.sha256("".join(tool.digest for tool in tools.values()).encode()).hexdigest()
    return ModelRequest(api, body, Listing(tools, digest, len(text)), body.get("stream") is True, len(text))


def _make_unusable(name: str, digest: str) -> ListedTool:
    return ListedTool(
        name, schema=Unparsed(b"", "the request gives no schema, or two"), digest=f"{name}/{digest}/unjudged"
    )


def _list_other_names(api: Api, body: Mapping[str, Any]) -> Iterator[str]:
    """The names of tools of other kinds, in namespaces, and from earlier items."""
    items = body.get("input") if api is Api.RESPONSES else None
    holders = [body, *(item for item in (items if isinstance(items, list) else ()) if isinstance(item, dict))]
    while holders:
        written = holders.pop().get("tools")
        for entry in written if isinstance(written, list) else ():
            if isinstance(entry, dict):
                holders.append(entry)
                if isinstance(name := entry.get("name"), str) and name:
                    yield name


def _list_tools(api: Api, written: JsonValue) -> Iterator[ListedTool]:
    for entry in written if isinstance(written, list) else ():
        if isinstance(entry, dict) and (found := _find_function(api, entry)) is not None:
            name, schema = found.get("name"), found.get("input_schema" if api is Api.MESSAGES else "parameters")
            if isinstance(name, str) and name:
                about = found.get("description")
                yield _make_tool(name, about if isinstance(about, str) else "", schema)


def _list_functions(api: Api, written: JsonValue) -> Iterator[ListedTool]:
    """The tools of the older form of Chat Completions."""
    entries = [{"type": "function", "function": each} for each in written] if isinstance(written, list) else []
    return _list_tools(api, entries if api is Api.CHAT else None)


def _find_function(api: Api, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part of an entry of `tools` that describes a function; None for tools of another kind."""
    kind = entry.get("type")
    if api is Api.MESSAGES:
        return entry if kind in (None, "custom") else None
    if kind != "function":
        return None
    inner = entry.get("function")
    return entry if api is Api.RESPONSES else inner if isinstance(inner, dict) else None


def _make_tool(name: str, description: str, schema: JsonValue) -> ListedTool:
    schema = _ANY_OBJECT if schema is None else schema
    digest = hashlib.sha256(dumps([name, schema])).hexdigest()
    return ListedTool(name, description, schema, digest=digest)


# --- the request by which a model is asked again ----------------------------------------------------------------------
# The request that repeats the question to a model: the first one, with the refused turn and a result for each of its
# calls.
#
# The APIs require a result for every call: a refused one gets feedback, a valid one gets a note that it has not run
# and should be repeated. The usage of all answers is summed as the last one reports it.

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
