"""The arguments of a tool in TypeScript-like shorthand: `{path: string (required), encoding?: 'utf-8' | 'ascii'}`.

`write_signature` writes a schema as a whole. `write_accepts` writes the `Accepts:` line of an answer in several sizes,
longest first: where not everything fits, what is shown is chosen. First come the fields in error and those that an
unknown key may mean, then those required, then fields whose words are near the sent ones. The rest have only names, and
no name is cut while anything else is left to cut. Repeated parts are written once (`as 'from'`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from math import isfinite
from typing import Final, NamedTuple

from proxy.core.check.validation import Check
from proxy.core.display.graphemes import cut, cut_parts, cut_sentences
from proxy.core.display.preview import are_open, clean_text, read_key, sanitise_value
from proxy.core.display.secrets import is_sensitive, mask_credentials
from proxy.core.explain.expectation import describe_types, list_limits, list_unlisted_types, write_choice
from proxy.core.json.jsontext import dumps, dumps_known, name_json_type
from proxy.core.model.values import ABSENT, FeedbackLimits, JsonValue, Pointer, value_class
from proxy.core.model.work import WRITING_SIGNATURE, Work
from proxy.core.rules.facts import list_declared, list_required, nodes_at, read_facts
from proxy.core.schema.nodes import Node

# --- an example that may be copied ------------------------------------------------------------------------------------
# An example that may be copied: each value in it is whole, or a placeholder such as `<text as sent>` is there.
#
# A value that was sent is not repeated if it is long, if it is a secret, or if it holds a credential or a file path.
# The values that the schema itself lists are the operator's words: they are never cut or hidden.

# The values of an example that are looked at, and the characters of one that the schema lists.
_MOST_VALUES: Final = 400
_LONGEST_LISTED: Final = 400


def make_copyable(check: Check, value: JsonValue, sent: JsonValue, limits: FeedbackLimits) -> JsonValue:
    """An example in which every value is whole or a placeholder; `ABSENT` if it has too many values. Of `sent`, whose
    parts the example holds by identity, no long part is repeated."""
    if value is ABSENT or (_is_short(value, limits) and sanitise_value(value, limits) == value):
        return value
    copy = _Copy(check, sent, limits)
    made = copy.show(value, (), is_secret=False)
    return made if copy.left >= 0 else ABSENT


def is_placeholder(value: JsonValue) -> bool:
    """Returns whether a value is written like a placeholder."""
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


def _is_short(value: JsonValue, limits: FeedbackLimits) -> bool:
    try:
        return len(dumps_known(value)) <= limits.max_preview
    except UnicodeEncodeError:  # half a character is never shown
        return False


class _Copy:
    """Shows the values of one example."""

    def __init__(self, check: Check, sent: JsonValue, limits: FeedbackLimits) -> None:
        self.check = check
        self.limits = limits
        self.left = _MOST_VALUES
        self.parts: set[int] = set()  # the lists and objects that were sent, by identity
        self.texts: set[str] = set()  # the texts that were sent and look like placeholders
        found = [sent]
        for item in found:  # grows in the loop
            kind = type(item)
            if kind is str:
                if item.startswith("<") and item.endswith(">"):
                    self.texts.add(item)
            elif kind is dict or kind is list:
                self.parts.add(id(item))
                found += item.values() if kind is dict else item

    def show(self, value: JsonValue, path: Pointer, *, is_secret: bool) -> JsonValue:
        self.left -= 1
        kind = type(value)
        if kind is str and value.startswith("<") and value.endswith(">") and value not in self.texts:
            return value  # a placeholder
        if self.left < 0 or value is None or kind is bool or (kind is float and not is_secret and isfinite(value)):
            return value
        if kind is dict or kind is list:
            return self.show_members(value, path, is_secret)
        if (not is_secret and sanitise_value(value, self.limits) == value) or self.is_listed(value, path):
            return value
        is_path = isinstance(value, str) and not is_secret and mask_credentials(value) == value
        is_path = is_path and clean_text(str(value), len(str(value)), self.limits) != value
        return "<path as sent>" if is_path else f"<{_NOUNS.get(name_json_type(value), 'number')} as sent>"

    def show_members(self, value: JsonValue, path: Pointer, is_secret: bool) -> JsonValue:
        """An object or a list; one of many characters that was sent is not repeated."""
        if value and id(value) in self.parts and not _is_short(value, self.limits):
            return f"<{_NOUNS[name_json_type(value)]} as sent>"
        if isinstance(value, list):
            return [self.show(item, (*path, index), is_secret=is_secret) for index, item in enumerate(value)]
        shown: dict[str, JsonValue] = {}
        is_open = are_open(value, self.limits)
        for key, item in value.items():
            is_plain, hides = (True, False) if is_open else read_key(key, self.limits)
            name = key if is_plain or self.is_known(key, path) else "<key as sent>"
            if name in shown:
                name = f"<key {len(shown) + 1} as sent>"
            shown[name] = self.show(item, (*path, key), is_secret=is_secret or hides)
        return shown

    def is_known(self, key: str, path: Pointer) -> bool:
        """Returns whether a key is shown whole that is not plain: a short one, or one that the schema declares."""
        is_whole = len(key) <= self.limits.max_preview and clean_text(key, len(key), self.limits) == key
        return is_whole or key in list_declared(nodes_at(self.check, path))

    def is_listed(self, value: JsonValue, path: Pointer) -> bool:
        """Returns whether the schema lists a value of its place as one that it takes."""
        if isinstance(value, str) and len(value) > _LONGEST_LISTED:
            return False
        return any(value in (read_facts(node).site.choices or ()) for node in nodes_at(self.check, path))


_NOUNS: Final = {"string": "text", "array": "list", "object": "object"}


# --- what a tool takes ------------------------------------------------------------------------------------------------
MAX_DEPTH: Final = 4
_MAX_CHOICES: Final = 12
_MAX_KEYS: Final = 24
_MAX_NAME: Final = 60
_MAX_ALTERNATIVE: Final = 400
_MAX_DESCRIPTION: Final = 100
# Levels of a part in error that are shown at least.
_FOCUSED: Final = 3
# Levels below the last one at which the items of lists still have their types.
_DEEPEST_ITEM: Final = -3
# A text that repeats is written once from this length on.
_WORTH_NAMING: Final = 32
# An `Accepts` up to this length needs no shorter one beside it.
SHORT_ACCEPTS: Final = 360
# Places of a schema that are visited to write one size.
_ALL_KEYS: Final = 400
# `Accepts` lines that a schema remembers: models repeat their mistakes.
_REMEMBERED: Final = 16
# A longer key holds names that a client has made up: its line is not remembered.
_LONGEST_KEY: Final = 2000


def write_signature(node: Node, depth: int = MAX_DEPTH) -> str:
    """A schema in TypeScript-like shorthand, `depth` levels of it, at most 500 places; `...` replaces the rest."""
    memo: dict[tuple[int, int], str] = node.schemas.memos.setdefault("signature", {})
    text = memo.get((id(node), depth))
    if text is None:
        text = memo[id(node), depth] = _Writer(Work(WRITING_SIGNATURE), _WHOLE).write(node, depth, None, "")
    return text


@value_class
class Focus:
    """The parts that an `Accepts` line shows first. `inside` leads to the members that matter, by key (`*` for items).
    `candidates` are keys here that an unknown key may mean, which are shown with their description. `missing` are keys
    that a schema declares and the call lacks, and `undeclared` those that no schema declares."""

    inside: dict[str, Focus] = field(default_factory=dict)
    candidates: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    undeclared: set[str] = field(default_factory=set)

    def at(self, path: Pointer) -> Focus:
        """The focus of a place, made with those above it."""
        focus = self
        for step in path:
            focus = focus.inside.setdefault("*" if isinstance(step, int) else step, Focus())
        return focus


class Wanted(NamedTuple):
    """The places of a `Focus`: those that are shown first, and those of keys that are missing, that no schema declares,
    or that an unknown key may mean."""

    shown: tuple[Pointer, ...] = ()
    missing: tuple[Pointer, ...] = ()
    undeclared: tuple[Pointer, ...] = ()
    candidates: tuple[Pointer, ...] = ()


@value_class
class _Size:
    """The shown part of places out of focus: levels, keys of an object, and whether optional keys have types."""

    depth: int
    keys: int
    typed: bool


_WHOLE: Final = _Size(MAX_DEPTH, _MAX_KEYS, True)
_ACCEPTS: Final = (
    _Size(8, _ALL_KEYS, True), _Size(MAX_DEPTH, _ALL_KEYS, True), _Size(2, _ALL_KEYS, True),
    _Size(1, _ALL_KEYS, True), _Size(2, _ALL_KEYS, False), _Size(1, _ALL_KEYS, False), _Size(0, _ALL_KEYS, False),
)  # fmt: skip


def write_accepts(node: Node, wanted: Wanted) -> tuple[str, ...]:
    """Returns the accepted arguments of a schema in several sizes, longest first; one if that is short."""
    memo: dict[tuple[int, Wanted], tuple[str, ...]] = node.schemas.memos.setdefault("accepts", {})
    sizes = memo.get((id(node), wanted))
    if sizes is None:
        focus, found = Focus(), list[str]()
        for path in wanted.shown:
            focus.at(path)
        for name in ("missing", "undeclared", "candidates"):
            for path in getattr(wanted, name):
                getattr(focus.at(path[:-1]), name).add(str(path[-1]))
        for size in _ACCEPTS:
            text = _Writer(Work(WRITING_SIGNATURE), size).write(node, size.depth, focus, "")
            if not found or len(text) < len(found[-1]):
                found.append(text)
            if len(text) <= SHORT_ACCEPTS:
                break
        sizes = tuple(found)
        if len(str(wanted)) <= _LONGEST_KEY:
            if len(memo) >= _REMEMBERED:
                memo.clear()
            memo[id(node), wanted] = sizes
    return sizes


class _Writer:
    """Writes one size of a signature."""

    def __init__(self, work: Work, size: _Size) -> None:
        self.work = work
        self.size = size
        self.written: dict[str, str] = {}
        self.open: set[int] = set()  # the objects that are being written, by their schema's identity

    def write(self, node: Node, depth: int, focus: Focus | None, name: str) -> str:
        self.work.left -= 1
        if self.work.left < 0:
            return "..."
        parts = list(node.always)
        site = read_facts(node).site
        keys = {key: member for part in parts for key, member in part.properties.items()}
        if site.choices is not None and not site.free_text and not keys and list_unlisted_types(site) <= {"null"}:
            most = _ALL_KEYS if focus is not None else _MAX_CHOICES
            return _join_alternatives([write_choice(choice) for choice in site.choices], "null" in site.types, most)
        if keys and "object" in site.types:
            return self.write_object(parts, keys, depth, focus)
        branches = next((part.any_of or part.one_of for part in parts if part.any_of or part.one_of), ())
        if branches:
            if depth <= 0 and focus is None:
                return "..."
            shown = [self.write(branch, depth - 1, focus, name) for branch in branches[: 2 * _MAX_CHOICES]]
            return _join_alternatives(shown, False, _MAX_CHOICES)
        if site.types == {"object"}:
            return self.write_map(parts, depth, name) + self.write_limits(node, name)
        if site.types == {"array"}:
            item = next((part.items for part in parts if part.items is not None), None)
            below = focus.inside.get("*") if focus is not None else None
            inner = "any"
            if item is not None:  # a list in a list in a list may have no end
                inner = self.write(item, depth - 1, below, name) if depth > _DEEPEST_ITEM or focus else "..."
            inner = f"({inner})" if " | " in inner else inner
            return inner + "[]" + self.write_limits(node, name)
        types = describe_types(site).replace(" or ", " | ").replace("any value", "any")
        return types + self.write_limits(node, name)

    def write_limits(self, node: Node, name: str) -> str:
        """The limits of a place in brackets; a long text that stood before is named by where it stood."""
        limits = list_limits(node)
        text = f" ({', '.join(limits)})" if limits else ""
        if len(text) < _WORTH_NAMING or not name:
            return text
        first = self.written.setdefault(text, name)
        return text if first == name else f" (as '{first}')"

    def write_map(self, parts: list[Node], depth: int, name: str) -> str:
        """Returns an object whose keys are not declared one by one: the form of their names and of their values."""
        rules = [(f"name with pattern {cut(pattern, _MAX_NAME)}", member)
                 for part in parts for pattern, member in part.pattern_properties.items()]  # fmt: skip
        rules += [("name", part.additional) for part in parts if part.additional is not None and part.additional.raw]
        rules = [(key, member) for key, member in rules if isinstance(member.raw, dict)]
        if not rules or depth <= 0:
            return "object"
        return "{" + ", ".join(f"[{key}]: {self.write(member, depth - 1, None, name)}" for key, member in rules) + "}"

    def write_object(self, parts: list[Node], keys: Mapping[str, Node], depth: int, focus: Focus | None) -> str:
        own = next(id(part) for part in parts if part.properties)
        if own in self.open and (focus is None or not focus.inside):
            return "{as above}"
        if depth <= 0 and focus is None:
            return "{...}"
        self.open.add(own)
        wanted = list_required(parts) | (focus.missing if focus is not None else set())
        ordered = sorted(keys, key=lambda key: key not in wanted)
        named: list[str] = []
        if self.size.typed:
            chosen = ordered[: self.size.keys]
        else:
            first = {*focus.inside, *focus.candidates} if focus is not None else set()
            chosen = [key for key in ordered if key in first] + [key for key in ordered if key in wanted - first]
            named = [cut(key, _MAX_NAME) for key in ordered if key not in first and key not in wanted]
        shown = [self.write_member(key, keys[key], key in wanted, depth, focus) for key in chosen]
        left = len(keys) - len(shown) - len(named)
        shown += [f"{clean_text(key, _MAX_NAME)}: any (required)" for key in sorted(focus.undeclared if focus else ())]
        if named:
            shown.append("optional, without their types: " + ", ".join(named))
        if left > 0:
            shown.append(f"... {left} more")
        self.open.discard(own)
        return "{" + ", ".join(shown) + "}"

    def write_member(self, key: str, node: Node, is_wanted: bool, depth: int, focus: Focus | None) -> str:
        below = focus.inside.get(key) if focus is not None else None
        is_candidate = focus is not None and key in focus.candidates
        if focus is not None and below is None and (is_candidate or key in focus.missing):
            below = Focus()
        name = cut(key, _MAX_NAME)
        text = self.write(node, max(depth - 1, _FOCUSED) if below is not None else depth - 1, below, name)
        if len(text) >= _WORTH_NAMING and "..." not in text:
            first = self.written.setdefault(text, name)
            text = text if first == name else f"as '{first}'"
        if is_wanted:
            text = text[:-1] + ", required)" if text.endswith(")") and "(" in text else text + " (required)"
        text = f"{name}{'' if is_wanted else '?'}: {text}"
        described = _describe(node) if is_candidate else ""
        return f"{text} /* {described} */" if described else text


def _describe(node: Node) -> str:
    """The schema's description of a place, short; '' without one."""
    texts = (part.get("description") for part in node.always)
    found = next((text for text in texts if isinstance(text, str)), "")
    found = mask_credentials(" ".join(found.split()), _MAX_DESCRIPTION).replace("*/", "* /")
    return "" if is_sensitive(node) else cut_sentences(found, _MAX_DESCRIPTION)


def _join_alternatives(shown: Iterable[str], null: bool, most: int) -> str:
    kept = list(dict.fromkeys(cut_parts(text, _MAX_ALTERNATIVE) for text in shown))
    if null and "null" not in kept:
        kept.append("null")
    more = [f"... {len(kept) - most} more"] if len(kept) > most else []
    return " | ".join(kept[:most] + more)


# --- the schema itself ------------------------------------------------------------------------------------------------
# Keywords that tell a model nothing about what to send.
_SILENT: Final = frozenset(["$schema", "$id", "$comment", "title", "examples", "deprecated", "readOnly"])
# Members that hold values, and those under which names are.
_VALUES: Final = frozenset(["default", "const", "enum", "required"])
_NAMES: Final = frozenset(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"])


def write_schema(node: Node) -> str:
    """The schema as compact JSON, without what tells a model nothing and without what a secret's schema shows of it."""
    memo: dict[int, str] = node.schemas.memos.setdefault("schema text", {})
    text = memo.get(id(node))
    if text is None:
        text = memo[id(node)] = dumps(_prune(node.raw, False)).decode("utf-8", "replace")
    return text


def _holds_credential(value: JsonValue) -> bool:
    text = dumps(value).decode("utf-8", "replace")
    return mask_credentials(text) != text


def _prune(value: JsonValue, are_names: bool) -> JsonValue:
    if isinstance(value, list):
        return [_prune(item, False) for item in value]
    if not isinstance(value, dict):
        return value
    if are_names:
        return {key: _prune(item, False) for key, item in value.items()}
    secret = value.get("writeOnly") is True or value.get("format") == "password" or value.get("x-sensitive") is True
    hidden = _SILENT | {"default", "const", "enum"} if secret else _SILENT
    return {
        key: item if key in _VALUES else _prune(item, key in _NAMES)
        for key, item in value.items()
        if key not in hidden and not key.startswith("x-") and not (key == "default" and _holds_credential(item))
    }
