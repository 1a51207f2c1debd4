"""Reads YAML into JSON values, each with its line and column. No other file of the config room knows YAML.

Scalars have the meaning of the YAML 1.2 core schema, not of YAML 1.1. Only true and false are booleans, so `mode: off`,
`yes`, `no`, `12:30`, `2024-01-01` and `1_000` stay text. `0777` is a decimal number. Constructs that two readers could
understand differently, or that JSON does not have, are refused: duplicate keys, tags, merge keys, `.inf`, several
documents. Aliases are accepted, but the size of the unfolded document is limited (the "billion laughs" attack).

PyYAML parses the text into events with their places; this file builds the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

import yaml

from proxy.core.json.jsontext import LosslessFloat
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer

# Far larger than any known config or OpenAPI description; a document that unfolds to more is an attack or a mistake.
MAX_NODES: Final = 2_000_000
MAX_DEPTH: Final = 100

# libyaml's parser, if PyYAML was built with it: about ten times as fast, with the same places.
_PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"([-+]?)(\.[0-9]+|[0-9]+(?:\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@value_class
class YamlNode:
    """A value and its place. `children` holds the nodes of a mapping or list by key or index, `keys` the places of a
    mapping's keys, `size` the number of values inside with every alias unfolded."""

    value: JsonValue
    line: int
    column: int
    children: Mapping[str | int, YamlNode] = field(repr=False)
    keys: Mapping[str, tuple[int, int]] = field(repr=False)
    size: int = 1

    def at(self, path: Pointer, *, key: bool = False) -> tuple[int, int]:
        """Returns line and column of the value at a path, or of the nearest one around it that exists. With `key` they
        are those of the mapping key that the path ends with, if it ends with one."""
        node = self
        for depth, step in enumerate(path, 1):
            if key and depth == len(path) and (place := node.keys.get(str(step))) is not None:
                return place
            child = node.children.get(step)
            if child is None:
                break
            node = child
        return node.line, node.column


class YamlError(ValueError):
    """Text that is not acceptable YAML. Line and column count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def read_yaml(text: bytes, parser: Any = _PARSER) -> YamlNode:
    """Reads one YAML document.

    Takes UTF-8 bytes and the PyYAML loader to parse them with; gives the tree of values. Numbers with a fraction or an
    exponent become `LosslessFloat`, as in `jsontext.parse`. Raises YamlError, which says what is wrong and where.
    """
    try:
        content = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise YamlError("the file is not UTF-8", line, error.start - text.rfind(b"\n", 0, error.start)) from None
    try:
        return _Builder(yaml.parse(content, Loader=parser)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _explain_syntax(error, content, line, column) from None
    except yaml.reader.ReaderError as error:
        before = content[: error.position] if isinstance(error.position, int) else ""
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise YamlError(f"not YAML: {error.reason}", line, column) from None


# A reference that is not quoted: its brace ends a mapping in flow style.
_FLOW_REFERENCE: Final = re.compile(r"(?<![\"'\w])\$\{[^}\"']*\}")


def _explain_syntax(error: yaml.MarkedYAMLError, content: str, line: int, column: int) -> YamlError:
    """The parser's complaint with its remedy, if a usual cause is known; it reports an unclosed quote at its begin."""
    problem = error.problem or error.context or ""
    written = content.splitlines()[line - 1] if line <= len(content.splitlines()) else ""
    here = written[column - 1 : column]
    if "unexpected end of stream" in problem and error.context_mark and "quoted scalar" in (error.context or ""):
        opening = error.context_mark
        return YamlError("not YAML: this quote is never closed", opening.line + 1, opening.column + 1)
    if reference := _FLOW_REFERENCE.search(written) if "did not find expected ','" in problem else None:
        remedy = f'put {reference[0]} in quotes inside braces and brackets: "{reference[0]}"'
    elif ("cannot start any token" in problem and here == "\t") or "found a tab character" in problem:
        remedy = "a tab cannot indent: write spaces"
    elif "cannot start any token" in problem and here:
        remedy = f"a text cannot start with {here}: put it in quotes"
    elif any(words in problem for words in ("expected '-' indicator", "expected <block end>", "find expected key")):
        remedy = "the indentation fits neither the line before nor an entry around it: align it with its neighbours"
    elif "mapping values are not allowed" in problem:
        remedy = "a key is not allowed here: align it with its neighbours, or put a text that holds ': ' in quotes"
    elif "could not find expected ':'" in problem:
        remedy = "a key without ': ' is before this place"
    else:
        return YamlError(f"not YAML: {problem}", line, column)
    return YamlError(f"not YAML: {remedy}", line, column)


_NOTHING: Final[Mapping[Any, Any]] = {}


class _Builder:
    """Builds the tree from the parser's events (YAML 1.2 section 3.1: composing and constructing in one step)."""

    def __init__(self, events: Iterator[Any]) -> None:
        self.events = events
        self.anchors: dict[str, YamlNode | None] = {}
        self.texts: dict[str, str] = {}  # each text once: a config has few words, and thousands of routes repeat them

    def document(self) -> YamlNode:
        next(self.events)  # stream start
        event = next(self.events)
        if isinstance(event, yaml.StreamEndEvent):
            raise YamlError("the file is empty", 1, 1)
        root = self.node(next(self.events), 1)
        next(self.events)  # document end
        event = next(self.events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise _make_problem(event, "a second document: one file holds one document")
        return root

    def node(self, event: Any, depth: int) -> YamlNode:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise _make_problem(event, f"no anchor &{event.anchor} before this alias")
            if (target := self.anchors[event.anchor]) is None:
                raise _make_problem(event, f"the alias *{event.anchor} is inside its own anchor")
            return target
        if event.tag is not None:
            raise _make_problem(event, f"tags such as {event.tag} are not used here: leave it out")
        if depth > MAX_DEPTH:
            raise _make_problem(event, f"nested deeper than {MAX_DEPTH} levels")
        if event.anchor is not None:
            self.anchors[event.anchor] = None  # marks it as unfinished: an alias within it would never end
        if isinstance(event, yaml.ScalarEvent):
            is_plain = event.implicit[0]  # a quoted or block scalar is always text
            if is_plain and _NO_JSON.fullmatch(event.value):
                raise _make_problem(event, f"{event.value} is not a JSON value")
            text = self.texts.setdefault(event.value, event.value)
            node = YamlNode(read_scalar(text) if is_plain else text, *_find_place(event), _NOTHING, _NOTHING)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self.sequence(event, depth)
        else:
            node = self.mapping(event, depth)
        if node.size > MAX_NODES:
            raise _make_problem(event, f"unfolds to more than {MAX_NODES} values")
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def sequence(self, start: Any, depth: int) -> YamlNode:
        children: dict[str | int, YamlNode] = {}
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            children[len(children)] = self.node(event, depth + 1)
        return _make_container(start, [child.value for child in children.values()], children, _NOTHING)

    def mapping(self, start: Any, depth: int) -> YamlNode:
        children: dict[str | int, YamlNode] = {}
        keys: dict[str, tuple[int, int]] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                raise _make_problem(event, "a key is plain text")
            key = self.texts.setdefault(event.value, event.value)
            if key == "<<" and event.implicit[0]:
                remedy = "write the keys out, or put them under `defaults`"
                raise _make_problem(event, f"merge keys (<<) are YAML 1.1: {remedy}")
            if key in keys:
                raise _make_problem(event, f"duplicate key {key!r}, first on line {keys[key][0]}")
            keys[key] = _find_place(event)
            children[key] = self.node(next(self.events), depth + 1)
        return _make_container(start, {key: children[key].value for key in keys}, children, keys)


def _make_container(
    start: Any, value: JsonValue, children: Mapping[str | int, YamlNode], keys: Mapping[str, tuple[int, int]]
) -> YamlNode:
    return YamlNode(value, *_find_place(start), children, keys, 1 + sum(child.size for child in children.values()))


def _find_place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _make_problem(event: Any, message: str) -> YamlError:
    return YamlError(message, *_find_place(event))


def read_scalar(text: str) -> JsonValue:
    """Returns what plain text means by the YAML 1.2 core schema (section 10.3.2), as a JSON value."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > 4300:  # more digits than Python converts, see jsontext.MAX_INTEGER_DIGITS
            return text
        return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)
    found = _FLOAT.fullmatch(text)
    if found is None:
        return text
    # JSON's grammar has no `+1.5`, `.5`, `1.` or `01.5`.
    sign, digits, exponent = found.groups("")
    whole, point, fraction = digits.partition(".")
    written = (whole.lstrip("0") or "0") + (f".{fraction or 0}" if point else "") + exponent
    return LosslessFloat((f"-{written}" if sign == "-" else written).encode())
