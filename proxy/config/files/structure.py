"""Compares the config with its published schema, and words the mistakes.

Editors complete from `schemas/config.schema.json`, and the same schema is enforced here (`published.py`). It is
compiled like the tools' schemas. The wording comes from the schema too: `x-expects` says which values a place accepts.

Invalid parts are left out of the value that is read further (`Structure.entry`), so that the rest of the file is still
checked and all mistakes are found at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from proxy.config.files import fast_structure
from proxy.config.files.hints import suggest_key, suggest_value, write_yaml_scalar
from proxy.config.files.published import load_published_schema
from proxy.config.files.secrets import Secret, restore_written, reveal_all
from proxy.config.files.source import ConfigSource
from proxy.config.files.yaml12 import read_scalar
from proxy.config.mistakes import LISTED_RULES, Mistake, explain_rule, join_words, suggest_word
from proxy.core.check.validation import BrokenKeyword, Check, compile_check
from proxy.core.display.secrets import is_secret_name
from proxy.core.json.jsontext import dumps, find_at_pointer, name_json_type
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.nodes import Node
from proxy.plugin import AddsKeys
from proxy.plugins import find_plugins, list_plugins

_SHOWN: Final = 60  # characters of a value that a message shows
# Keywords that speak of a whole value, and not of what is inside.
_ABOUT_WHOLE: Final = frozenset({"type", "enum", "const", "not", "pattern", "anyOf"})


# Other systems' names for our keys, for the hint at an unknown key and for the page (docs/config.md, "Names of other
# systems"). System -> its name -> how it is written here.
_OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "Acode": {
        "retry": "`attempts: {max: 3}`",
        "max_attempts": "`attempts: {max: 3}`",
        "formatting": "`feedback: {max_chars: 2000, max_errors: 10, max_preview: 100}`",
        "max_message_length": "`feedback: {max_chars: 2000}`",
        "max_errors_shown": "`feedback: {max_errors: 10}`",
        "max_value_preview": "`feedback: {max_preview: 100}`",
    },
    "GoMind": {"GOMIND_AGENT_RETRY_BACKOFF_MS": "`resend: {backoff: 1s}`"},
    "Compozy": {
        "llm": "`guidance: {dynamic_state: on}`, `caps: {default: 3}`, `finalize_output_retries: 2`",
        "enable_dynamic_prompt_state": "`guidance: {dynamic_state: on}`",
        "tool_call_caps": "`caps: {default: 3, overrides: {web_search: 5}}`",
    },
    "HPD": {
        "IsContainer": "`container: {functions: [add, subtract]}`",
        "FunctionNames": "`container: {functions: [add, subtract]}`",
    },
}


def list_other_names() -> Iterator[tuple[str, str, str]]:
    """The names of other systems: system, its name, what to write here."""
    for table in (_OTHER_NAMES, *(plugin.other_names for plugin in find_plugins(AddsKeys))):
        yield from ((system, name, here) for system, names in table.items() for name, here in names.items())


@cache
def _check(plugins: tuple[str, ...]) -> Check:  # noqa: ARG001 - the schema has the keys of these plugins
    """The check of the published schema. It is cached, because compiling it takes 150 ms of processor time, and a
    config with mistakes is often followed by another."""
    return compile_check(load_published_schema())


def describe_section(value: JsonValue, path: Pointer) -> str:
    """Returns the section of a place in the config: `route '/tools/weather'`, `tool 'add'`, `listen` or ''."""
    if len(path) >= 2 and path[0] in ("upstreams", "tools"):
        return f"{str(path[0])[:-1]} {str(path[1])!r}"
    if len(path) >= 2 and path[0] == "routes":
        entry = value["routes"][path[1]] if isinstance(value.get("routes"), list | dict) else None
        named = entry.get("name") or entry.get("path") if isinstance(entry, dict) else None
        fallback = f"number {path[1] + 1}" if isinstance(path[1], int) else repr(path[1])
        return f"route {restore_written(named)!r}" if isinstance(named, str) else f"route {fallback}"
    return str(path[0]) if path else ""


@value_class
class Structure:
    """The config's value, and the places whose structure is wrong."""

    value: JsonValue
    bad: frozenset[Pointer]

    def entry(self, *path: str | int) -> JsonValue:
        """Returns the value at a path without its invalid parts; None if it is missing or invalid itself."""
        value = self.value
        for depth, step in enumerate(path):
            if path[: depth + 1] in self.bad:
                return None
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return self._without_bad(value, path) if self.bad else value

    def has_mistake(self, path: Pointer, *keys: str) -> bool:
        """Returns whether anything at or below a path, or at one of these keys there, is invalid and reported."""
        paths = [(*path, key) for key in keys] or [path]
        return any(wrong[: len(at)] == at for wrong in self.bad for at in paths)

    def has_misspelt(self, path: Pointer, key: str) -> bool:
        """Returns whether a mapping has an unknown key, which is reported already, in place of a key like this one."""
        return any(wrong[:-1] == path and suggest_word(str(wrong[-1]), (key,)) for wrong in self.bad if wrong)

    def _without_bad(self, value: JsonValue, path: Pointer) -> JsonValue:
        if isinstance(value, dict):
            return {
                key: self._without_bad(item, (*path, key))
                for key, item in value.items()
                if (*path, key) not in self.bad
            }
        if isinstance(value, list):
            return [
                self._without_bad(item, (*path, index))
                for index, item in enumerate(value)
                if (*path, index) not in self.bad
            ]
        return value


def check_structure(
    source: ConfigSource, value: JsonValue, unresolved: frozenset[Pointer] = frozenset()
) -> tuple[Structure, list[Mistake]]:
    """Compares a config's value, with references resolved, with the published schema.

    `unresolved` holds the places of references that could not be resolved and are reported already.
    """
    if not isinstance(value, dict):
        mistake = source.mistake((), "", "a config is a mapping of keys such as `version` and `routes`")
        return Structure({}, frozenset()), [mistake]
    broken = _list_broken(value)
    if sum(_read_as_number(value, entry) for entry in broken):
        broken = _list_broken(value)
    mistakes: dict[tuple[Pointer, str], Mistake] = {}
    bad: set[Pointer] = set(unresolved)
    for entry in broken:
        for path, key, message, hint in _describe_broken(value, entry):
            if path in unresolved:
                continue
            # The rest of a route that lacks a key is still checked.
            is_route = entry.keyword == "required" and path[:1] == ("routes",) and len(path) == 2
            bad.add((*path, entry.detail) if is_route else path)
            if message:
                text = message if entry.keyword in ("required", "additionalProperties") else "value"
                found = source.mistake(path, describe_section(value, path), message, hint, key=key)
                mistakes.setdefault((path, text), found)
    return Structure(value, frozenset(bad)), list(mistakes.values())


def _list_broken(value: JsonValue) -> list[BrokenKeyword]:
    plain = reveal_all(value)
    if fast_structure.ENABLED and fast_structure.accepts(load_published_schema, plain):
        return []
    check = _check(tuple(plugin.name for plugin in list_plugins()))
    return [inner for entry in check.list_broken(plain) for inner in _reduce_union(entry)]


def _reduce_union(entry: BrokenKeyword) -> Iterator[BrokenKeyword]:
    """Reduces a failed union to the errors of the branch that accepts this type of value, where there is one."""
    fitting = [
        branch
        for branch in entry.branches
        if not any(part.path == entry.path and part.keyword in _ABOUT_WHOLE for part in branch)
    ]
    if len(fitting) != 1:
        yield entry
        return
    for part in fitting[0]:
        yield from _reduce_union(part)


def _read_as_number(value: JsonValue, entry: BrokenKeyword) -> bool:
    """Replaces the text of a reference such as `${MAX}` by the expected number or switch; says whether it did."""
    if not entry.path or entry.keyword not in ("type", "enum"):
        return False
    holder = find_at_pointer(value, entry.path[:-1])
    written = holder[entry.path[-1]]
    if not isinstance(written, Secret):
        return False
    number = read_scalar(written.reveal())
    if not isinstance(number, str):
        holder[entry.path[-1]] = number
    return not isinstance(number, str)


# --- wording ----------------------------------------------------------------------------------------------------------
def _describe_broken(value: JsonValue, entry: BrokenKeyword) -> Iterator[tuple[Pointer, bool, str, str]]:
    """(path, whether the key is meant, message, hint) of one broken keyword. Without a message another one says it."""
    if entry.keyword == "additionalProperties":
        known = list(entry.node.properties)
        if entry.path == ("routes",) and (found := [name for name in entry.detail if name in _ROUTE_KEYS]):
            are = "is a key" if len(found) == 1 else "are keys"
            message = f"{', '.join(map(repr, found))} {are} of a route"
            yield (*entry.path, found[0]), True, message, "a route is an entry of a list: `- path: ...`"
            yield from (((*entry.path, name), True, "", "") for name in entry.detail if name != found[0])
            return
        for name in entry.detail:
            if entry.path[-2:] == ("repair", "rules"):
                yield (*entry.path, name), True, *explain_rule(name, f"unknown key {name!r}", LISTED_RULES)
                continue
            if names := entry.node.get("x-names"):
                yield (*entry.path, name), True, f"the name {name!r} is not allowed here", f"expects {names}"
                continue
            others = (f"{who} calls it so; here it is {here}" for who, own, here in list_other_names() if own == name)
            written = find_at_pointer(value, (*entry.path, name))
            hint = next(others, "") or suggest_key(entry.path, name, written) or _suggest_section(value, entry, name)
            hint = hint or (_suggest_holder(entry.node, name, written) if entry.path else "")
            hint = hint or suggest_word(name, known) or f"known here: {', '.join(known)}"
            yield (*entry.path, name), True, f"unknown key {name!r}", hint
    elif entry.keyword == "required":
        described = (entry.node.reference or entry.node).properties.get(entry.detail)
        hint = str(described.get("description") or "").rstrip(".") if described else ""
        if described and described.choices is not None and len(described.choices) == 1:
            hint = f"add `{entry.detail}: {described.choices[0]}`"
        yield entry.path, bool(entry.path), f"{entry.detail!r} is missing", hint
    else:
        subject = f"`{entry.path[-1]}` expects" if entry.path and isinstance(entry.path[-1], str) else "expects"
        # Of a text or a number that may be a secret only its kind and length is shown.
        found = find_at_pointer(value, entry.path)
        hides = any(step in _MAY_HIDE or is_secret_name(step) for step in entry.path if isinstance(step, str))
        if isinstance(found, str) and (hides or _IN_URLS.search(found) is not None):
            shown = f"a text of {len(found)} characters"
        else:
            shown = "a number" if hides and name_json_type(found) in ("number", "integer") else _shorten(found)
        yield entry.path, False, f"{subject} {_describe_expected(entry)}; this is {shown}", _suggest_hint(value, entry)


def _suggest_holder(node: Node, name: str, written: JsonValue) -> str:
    """The mapping among a node's properties to which a key belongs, if exactly one has a key of this name."""
    holders = [key for key, inner in node.properties.items() if any(name in part.properties for part in _unfold(inner))]
    if len(holders) != 1 or suggest_word(name, node.properties):
        return ""
    return f"did you mean `{holders[0]}: {{{name}: {_show_briefly(written)}}}`?"


def _unfold(node: Node) -> Iterator[Node]:
    """A node and the branches that a value may take there."""
    yield node
    for inner in (*node.any_of, *([node.reference] if node.reference is not None else ())):
        yield from _unfold(inner)


def _show_briefly(written: JsonValue) -> str:
    is_shown = not isinstance(written, dict | list | None | Secret) and len(str(written)) <= _SHOWN
    return write_yaml_scalar(written) if is_shown and " " not in str(written) else "..."


def _suggest_section(value: JsonValue, entry: BrokenKeyword, name: str) -> str:
    """Returns the right place of a policy key at the top level or in an upstream; '' for any other key."""
    in_upstream = len(entry.path) == 2 and entry.path[0] == "upstreams"
    policy = load_published_schema()["properties"]["defaults"]["properties"]
    if name not in policy or (entry.path and not in_upstream):
        return ""
    if in_upstream:
        return f"{name!r} is a key of a route, of a tool, or of `defaults`"
    return f"did you mean `defaults: {{{name}: {_show_briefly(find_at_pointer(value, (name,)))}}}`?"


# Keys that every route may have: if a path has one of these names, the dash of the list is missing.
_ROUTE_KEYS: Final = frozenset({"path", "upstream", "tool", "schema", "methods", "name", "kind"})

# An address without its scheme; user info would hold an `@`, and a query a `?`.
_HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}(/[^?#@]*)?")

# Keys whose values may be secrets, besides those that are named as secrets are.
_IN_URLS: Final = re.compile(r"@|[?#].*=")  # user info, and the query or fragment of a URL
_MAY_HIDE: Final = frozenset({"readers", "bearer", "env", "settings", "webhook", "command", "set"})


def _describe_expected(entry: BrokenKeyword) -> str:
    node = entry.node
    if words := node.get("x-expects") or (node.reference and node.reference.get("x-expects")):
        return str(words)
    if node.choices is not None:
        named = [choice for choice in node.choices if not isinstance(choice, bool)]  # `off` means false, too
        return join_words(str(choice) for choice in named or node.choices)
    bounds = [f"{word} {node.get(keyword)}" for keyword, word in _BOUNDS.items() if node.has(keyword)]
    if node.has("minimum") and node.has("maximum"):
        bounds = [f"from {node.get('minimum')} to {node.get('maximum')}"]
    if node.get("minLength") == 1:
        bounds = ["that is not empty"]
    kinds = " or ".join(_TYPE_WORDS[kind] for kind in sorted(node.types or ()))
    return " ".join([kinds or "another value", *bounds])


_BOUNDS: Final = {
    "minimum": "of at least",
    "maximum": "of at most",
    "minLength": "of at least",
    "minItems": "of at least",
    "minProperties": "of at least",
}
_TYPE_WORDS: Final = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "a mapping", "null": "nothing",
}  # fmt: skip


def _shorten(value: JsonValue) -> str:
    """A value as written, shortened; for a mapping or list only its kind."""
    if isinstance(value, dict | list):
        kind = _TYPE_WORDS[name_json_type(value)]
        return kind if value else kind.replace("a ", "an empty ")
    if value is None:
        return "empty"
    written = restore_written(value)
    text = json.dumps(written, ensure_ascii=False) if isinstance(written, str) else dumps(written).decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _suggest_hint(value: JsonValue, entry: BrokenKeyword) -> str:
    written = restore_written(find_at_pointer(value, entry.path))
    if entry.path[:1] == ("upstreams",) and isinstance(written, str):
        if len(entry.path) == 2:
            return "write it as `{url: ...}`"
        if entry.path[2:] == ("url",) and _HOST_AND_PORT.fullmatch(written):
            return f"did you mean http://{written}?"
    if hint := suggest_value(entry.path, written, _describe_expected(entry)):
        return hint
    if not isinstance(written, str):
        return ""
    choices, switch = list(_list_choices(entry.node)), _SWITCHES.get(written.casefold(), "")
    return f"did you mean {switch!r}?" if switch in choices else suggest_word(written, choices)


# Words that other formats have for a switch: `none` means `off`, and is like `on`.
_SWITCHES: Final = {
    "no": "off", "none": "off", "never": "off", "false": "off", "disabled": "off", "n": "off",
    "yes": "on", "always": "on", "true": "on", "enabled": "on", "y": "on",
}  # fmt: skip


def _list_choices(node: Node) -> Iterator[str]:
    if node.reference is not None:
        yield from _list_choices(node.reference)
    yield from (choice for choice in node.choices or () if isinstance(choice, str))
    for branch in node.any_of:
        yield from _list_choices(branch)
