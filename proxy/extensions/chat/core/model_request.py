"""A request to a model server: its API, and the tools by which the calls of the answer are judged.

Only these three requests are read (OpenAI API reference, "Create chat completion" and "Create a model response";
Anthropic API reference, "Create a Message"). Tools of other kinds (Anthropic's `bash_20250124`, namespaces of
Responses) have no schema of their own in the request, but a name: their calls are not judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
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
        """The model that is asked, as the request names it."""
        named = self.body.get("model")
        return named if isinstance(named, str) else ""

    @property
    def is_later(self) -> bool:
        """Returns whether the calls come in the answers to later requests (Responses)."""
        return self.api is Api.RESPONSES and self.body.get("background") is True

    @property
    def is_single(self) -> bool:
        """Whether the answer has one choice."""
        return self.body.get("n") in (None, 1)

    def may_call(self, names: Sequence[str]) -> bool:
        """Returns whether the request lets one answer call these tools: by `tool_choice`, and by whether calls may be
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
