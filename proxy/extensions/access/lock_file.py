"""The file `tools.lock`: the definition of each tool of a route when the operator approved it.

It holds the definitions, a part on a line each, so that a review of the file shows the changes. A digest of each
(SHA-256 over canonical JSON) reveals edits by hand.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from hashlib import sha256
from typing import Final, Literal

from proxy.core.contract.listed_tool import DEFINED, BadSchemaError, hash_definition, parse_schema
from proxy.core.display.graphemes import cut
from proxy.core.json.jsontext import TextLimits, dumps, format_pointer, parse, write_canonical
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue, Pointer
from proxy.extensions.operations.importing.harvest import flatten_text
from proxy.extensions.operations.importing.live import DescriptionChange, list_changes
from proxy.plugin import JsonPlaces

# --- finds text in a tool's definition that a model reads and a person may overlook -----------------------------------
# Finds text in a tool's definition that a model reads and a person may overlook: invisible and bidirectional
# characters, tag characters, and instructions about other tools ("tool poisoning"). Pure.
#
# A finding is a reason to look, not a proof. Joiners count only between letters and digits of ASCII, if no script
# needs them.

_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_JOINERS: Final = frozenset("\u200c\u200d")
# Letters that show nothing.
_BLANK: Final = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_LAYOUT: Final = frozenset("\n\r\t")
# A code point of each of these is named by its block.
_TAGS: Final = range(0xE0000, 0xE0080)
_SELECTORS: Final = (range(0xFE00, 0xFE0F), range(0xE0100, 0xE01F0))
# The words that give a model orders about a tool, and their greatest distance before its name.
_ORDERS: Final = re.compile(
    r"\b(call|use|using|invoke|run|execute|prefer|avoid|ignore|instead of|before|after|never|always|must|first)\b",
    re.IGNORECASE,
)
_BEFORE: Final = 60
_WORD: Final = re.compile(r"[\w.-]*\w")
# A name that does not occur in a sentence by chance.
_DISTINCT: Final = re.compile(r"[_.\-0-9]|[a-z][A-Z]")
_MOST_HIDDEN: Final = 20


def find_hidden(definition: Mapping[str, JsonValue], name: str, others: Collection[str]) -> list[str]:
    """The suspicious parts of a tool's definition, each with its place. `others`: the names of all tools."""
    found: list[str] = []
    for path, text in _list_texts({"name": name, **definition}, ()):
        place = format_pointer(path)
        found += [f"{place}: {what}" for what in (*_find_characters(text), *_find_orders(text, name, others))]
        if len(found) >= _MOST_HIDDEN:
            break
    return found[:_MOST_HIDDEN]


def _list_texts(value: JsonValue, path: Pointer) -> Iterator[tuple[Pointer, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield path, key
            yield from _list_texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _list_texts(item, (*path, index))


def _find_characters(text: str) -> Iterator[str]:
    """The first character of each kind that does not show, with its offset."""
    if text.isascii() and text.isprintable():
        return
    kinds: set[str] = set()
    for offset, character in enumerate(text):
        kind = _name_kind(character, text[max(0, offset - 1) : offset] + text[offset + 1 : offset + 2])
        if kind and kind not in kinds:
            kinds.add(kind)
            yield f"{kind} U+{ord(character):04X} at character {offset + 1}"


def _name_kind(character: str, beside: str) -> str:
    """The kind of an invisible character; '' for a visible one."""
    code = ord(character)
    if character in _BIDIRECTIONAL:
        return "bidirectional control character"
    if code in _TAGS:
        return "tag character"
    if character in _JOINERS:
        return "invisible character" if beside.isascii() else ""
    if character in _BLANK or any(code in block for block in _SELECTORS):
        return "invisible character"
    category = unicodedata.category(character)
    if category == "Cc" and character not in _LAYOUT:
        return "control character"
    return "invisible character" if category == "Cf" else ""


def _find_orders(text: str, name: str, others: Collection[str]) -> Iterator[str]:
    """The names of other tools that a text gives orders about."""
    for found in _WORD.finditer(text):
        other = found[0]
        if other == name or other not in others:
            continue
        before = text[max(0, found.start() - _BEFORE) : found.start()]
        is_named = before.endswith(("`", "'", '"')) or _DISTINCT.search(other) is not None
        if is_named and _ORDERS.search(before) is not None:
            yield f"an instruction about the tool {other!r} at character {found.start() + 1}"
            return


# --- the file `tools.lock` --------------------------------------------------------------------------------------------
Changed = Literal["warn", "hide", "refuse"]
# The parts that define a tool, by the keys of `DEFINED`.
Definition = Mapping[str, JsonValue]
# Route -> tool -> its definition.
Pins = Mapping[str, Mapping[str, Definition]]

FILE: Final = "tools.lock"
_ABOUT: Final = "Written by `toolcall-proxy pin`: the definitions of tools that are approved. Review its changes."
_LIMITS: Final = TextLimits(depth=200, nodes=5_000_000)
_LONGEST: Final = 600
_MOST: Final = 8
_VERSION: Final = 1


class LockProblem(Exception):  # noqa: N818 - a problem of the user's file, not an error of the proxy
    """The file cannot be used; the message says why."""


def select_definition(entry: Mapping[str, JsonValue]) -> Definition:
    """The definition of a tool in the file, without its digest."""
    return {key: entry[key] for key in DEFINED if key in entry}


def digest_tool(name: str, definition: Definition) -> str:
    """The digest of a definition."""
    return f"sha256:{sha256(write_canonical({**definition, 'name': name})).hexdigest()}"


# --- the file ---------------------------------------------------------------------------------------------------------
def write_lock(pins: Pins) -> str:
    """The text of the file, routes and tools in the order of their names."""
    routes = ",\n".join(f"  {_write(route)}: {{{_write_tools(pins[route])}}}" for route in sorted(pins))
    return f'{{\n"about": {_write(_ABOUT)},\n"version": {_VERSION},\n"routes": {{\n{routes}\n}}\n}}\n'


def _write_tools(tools: Mapping[str, Definition]) -> str:
    return ",".join(f"\n    {_write(name)}: {{{_write_parts(name, tools[name])}}}" for name in sorted(tools))


def _write_parts(name: str, definition: Definition) -> str:
    parts = {"digest": digest_tool(name, definition), **definition}
    return ",".join(f"\n      {_write(key)}: {_write(value)}" for key, value in parts.items())


def _write(value: JsonValue) -> str:
    return dumps(value).decode()


def read_lock(text: bytes) -> Pins:
    """The definitions in a file. Raises LockProblem, with the line."""
    value = parse(text, _LIMITS)
    if isinstance(value, JsonProblem):
        raise LockProblem(f"line {value.line}: {value.reason}")
    if not isinstance(value, dict) or not isinstance(value.get("routes"), dict):
        raise LockProblem("it is not a file that `toolcall-proxy pin` has written")
    places = JsonPlaces(text)
    if value.get("version") != _VERSION:
        line = places.at(("version",))[0]
        raise LockProblem(f"line {line}: version {_VERSION} is known here, and no other")
    for route, tools in value["routes"].items():
        for path, problem in _list_problems(route, tools):
            raise LockProblem(f"line {places.at(path, key=True)[0]}: {problem}")
    return {
        route: {name: select_definition(entry) for name, entry in tools.items()}
        for route, tools in value["routes"].items()
    }


def _list_problems(route: str, tools: JsonValue) -> Iterator[tuple[Pointer, str]]:
    at = ("routes", route)
    if not isinstance(tools, dict):
        yield at, f"route {route!r} holds no tools"
        return
    for name, entry in tools.items():
        if not isinstance(entry, dict) or entry.get("digest") != digest_tool(name, select_definition(entry)):
            yield (*at, name), f"tool {name!r} of route {route!r} does not have the digest next to it"


@value_class
class RouteOperations:
    """The HTTP operations of a route in the config, by name: the definitions of those on a plain route, and the
    requests of those that an MCP route lists."""

    plain: Mapping[str, Definition]
    requests: Mapping[str, JsonValue]


NO_OPERATIONS: Final = RouteOperations({}, {})


# --- one route --------------------------------------------------------------------------------------------------------
@value_class
class PinnedRoute:
    """Implements `PinnedTools`."""

    definitions: Mapping[str, Definition] = field(repr=False)
    changed: Changed
    hashes: Mapping[str, tuple[str, ...]] = field(repr=False)
    operations: RouteOperations = field(default=NO_OPERATIONS, repr=False)
    others: Collection[str] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        definitions: Mapping[str, Definition],
        changed: Changed,
        operations: RouteOperations = NO_OPERATIONS,
        others: Collection[str] = (),
    ) -> PinnedRoute:
        """The approved definitions of a route, beside the `operations` that the config gives it. `others`: the names of
        the tools of all routes."""
        hashes = {name: hash_definition(found) for name, found in definitions.items()}
        return cls(definitions, changed, hashes, operations, others)

    @property
    def unpinned(self) -> Mapping[str, str]:
        """The operations of a plain route with other definitions than approved, each with its differences."""
        found = {name: (hash_definition(known), known) for name, known in self.operations.plain.items()}
        return {name: self.describe_change(name, *each) for name, each in found.items() if self._differs(name, each[0])}

    def is_pinned(self, name: str, definition: tuple[str, ...]) -> bool:
        """Returns whether a tool has the approved definition."""
        return not self._differs(name, self._complete(name, definition))

    def _differs(self, name: str, definition: tuple[str, ...]) -> bool:
        return self.hashes.get(name) != definition

    def _complete(self, name: str, definition: tuple[str, ...]) -> tuple[str, ...]:
        """The definition of a listed tool with its HTTP request, which no list shows."""
        request = self.operations.requests.get(name)
        return definition if request is None else (*definition[:-1], hash_definition({DEFINED[-1]: request})[-1])

    def describe_change(self, name: str, definition: tuple[str, ...], known: Mapping[str, JsonValue]) -> str:
        """The differences of a tool from its approved definition, and its hidden text, in one line."""
        before, parts = self.definitions.get(name), ["new"]
        if (request := self.operations.requests.get(name)) is not None:
            definition, known = self._complete(name, definition), {**known, DEFINED[-1]: request}
        if before is not None:
            hashes = zip(DEFINED, self.hashes[name], definition, strict=True)
            parts = [line for key, old, new in hashes if old != new for line in _describe_part(key, before, known, new)]
        parts = [*(f"look at {what}" for what in find_hidden(known, name, {*self.others, *self.definitions})), *parts]
        more = f"; +{len(parts) - _MOST} more" if len(parts) > _MOST else ""
        return cut(flatten_text("; ".join(parts[:_MOST])), _LONGEST) + more


def _describe_part(key: str, before: Definition, known: Definition, new: str) -> Iterator[str]:
    """The changes of one part of a definition, where they can be shown."""
    if key not in before or not new:
        yield f"{key} {'added' if new else 'removed'}"
    elif key == "description":
        yield str(DescriptionChange("changed", (key,), before[key], known[key]))
    else:
        try:
            lines = list(map(str, list_changes(before[key], parse_schema(known[key]), (key,)))) if key in known else []
        except BadSchemaError:
            lines = []
        yield from lines or [f"{key} changed"]
