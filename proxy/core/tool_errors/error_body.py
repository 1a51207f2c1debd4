"""Opens an upstream's error body for the dialects: its texts, its objects and its lists, all bounded.

A body is JSON or plain text; frameworks also put JSON into a text (zod's `message`) and texts into JSON. `open_body`
gives all of it at once, so that a dialect only says what it looks for. Keys that echo the request (`input`, `value`,
`rejectedValue` ...) are never entered, so that an argument's own text is not taken for the tool's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonProblem, JsonValue

# The bytes that are read; an error names its cause early.
LOOKED_AT: Final = 64 * 1024
# The bytes cut off the end of a longer body's readable part: a divided credential would no longer be recognised.
_TORN: Final = 4096
_MOST_NODES: Final = 4000
_MOST_TEXTS: Final = 100
_LONGEST_TEXT: Final = 8192
# The code points of all texts together, because every dialect reads all of them.
_MOST_WORDS: Final = 32_768
_DEEPEST: Final = 8
# How deep texts with JSON are opened: a text inside an opened text is opened once more, and none further inside.
_NESTINGS: Final = 2

# Keys under which a body repeats what was sent, or describes something else than the arguments.
_ECHOES: Final = frozenset(
    ["input", "value", "rejectedvalue", "received", "context", "ctx", "params", "arguments", "request", "meta",
     "stack", "stacktrace", "trace", "traceid", "exception", "url", "instance", "timestamp", "headers", "cause"]
)  # fmt: skip
# Keys whose texts are words about the error.
_SPOKEN: Final = frozenset(
    ["message", "msg", "detail", "details", "error", "errors", "errordescription", "errormessage", "errormessages",
     "reason", "reasons", "title", "description", "text", "originalerror", "messages", "content", "result", "data",
     "fault", "faultstring", "body", "violations", "validationerrors", "issues", "hint", "why", "summary"]
)  # fmt: skip

_TAG: Final = re.compile(r"<[^<>]{0,300}>")


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The content of an error body. `texts` are its words, in order; `values` are all objects and lists in it,
    outermost first. `prose` is False for an HTML page, whose words are not sentences about the call."""

    texts: tuple[str, ...]
    values: tuple[JsonValue, ...]
    prose: bool = True


def open_body(content_type: str, body: bytes) -> ErrorBody:
    """Opens an error body. Looks at its first 64 KiB; never raises."""
    text = _text(body)
    if "html" in content_type.lower() or text.lstrip()[:9].lower() in ("<!doctype", "<html"):
        import html  # imported here: its table takes a third of a MB, and few tools answer with pages

        return ErrorBody((html.unescape(_TAG.sub("\n", text))[:_LONGEST_TEXT],), (), prose=False)
    opened = _Opened([], [])
    value = _json(text)
    if value is None:
        opened.take_text(text.strip(), 0)
    else:
        opened.take(value, 0)
    return ErrorBody(tuple(opened.texts), tuple(opened.values))


def _text(body: bytes) -> str:
    shown = body if len(body) <= LOOKED_AT else body[: LOOKED_AT - _TORN]
    return shown.decode("utf-8", "replace").replace("\r\n", "\n")


def _json(text: str) -> JsonValue:
    """The object, list or text of a JSON document, None for anything else."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return None
    value = parse(text.encode("utf-8", "replace"))
    return None if isinstance(value, JsonProblem) else value


@dataclass(slots=True)
class _Opened:
    """Collects the parts of a body while it is opened."""

    texts: list[str]
    values: list[JsonValue]
    words: int = 0

    def take(self, value: JsonValue, nesting: int) -> None:
        """Adds a parsed document, breadth first, so that outer parts come first."""
        queue: list[tuple[JsonValue, int, bool]] = [(value, 0, True)]
        for index, (item, depth, spoken) in enumerate(queue):
            if index >= _MOST_NODES:
                return
            if isinstance(item, str) and spoken:
                self.take_text(item, nesting)
            elif isinstance(item, dict | list):
                self.values.append(item)
                if depth < _DEEPEST:
                    room = _MOST_NODES - len(queue)
                    queue += [child for child, _ in zip(_inside(item, depth, spoken), range(room), strict=False)]

    def take_text(self, text: str, nesting: int) -> None:
        """Adds a text, and the JSON inside it if there is any."""
        if not text.strip() or len(self.texts) >= _MOST_TEXTS or self.words > _MOST_WORDS:
            return
        self.texts.append(text[:_LONGEST_TEXT])
        self.words += len(self.texts[-1])
        if nesting < _NESTINGS and (inner := _inner_json(text)) is not None:
            self.take(inner, nesting + 1)


def _inside(item: JsonValue, depth: int, spoken: bool) -> Iterator[tuple[JsonValue, int, bool]]:
    if isinstance(item, list):
        yield from ((entry, depth + 1, spoken) for entry in item)
        return
    for key, entry in item.items():
        name = "".join(character for character in key.lower() if character.isalnum())
        if name not in _ECHOES:
            yield entry, depth + 1, name in _SPOKEN


# The start of JSON inside a text: an object or a list of objects.
_JSON_START: Final = re.compile(r"\[\s*\{|\{\s*\"|\[\s*\"")


def _inner_json(text: str) -> JsonValue:
    found = _JSON_START.search(text)
    if found is None:
        return None
    value = _json(text[found.start() :].strip())
    return value if isinstance(value, dict | list) else None
