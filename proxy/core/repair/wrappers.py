"""Removes wrappers around a call's arguments, such as `{"arguments": {...}}`, where that is the only meaning.

Only the arguments as a whole are examined. A wrapper's name is undeclared and stands alone; its content holds a
declared key and validates, if need be after repair.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Final, Protocol

from proxy.core.check.validation import Check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.contract.toolname import trim
from proxy.core.model.values import JsonValue, Pointer, Repair
from proxy.core.model.work import Work
from proxy.core.rules.branches import Fit
from proxy.core.rules.facts import list_declared, list_member_schemas, list_required
from proxy.core.rules.keys import NAMING_KEYS, TELLING_WORDS, is_plumbing
from proxy.core.rules.members import fold
from proxy.core.rules.names import split_words
from proxy.core.rules.proposals import Site, read_inside
from proxy.core.rules.rules import LAST_RESORTS, TEXT_RULES, WRAPPER_KEYS
from proxy.core.schema.nodes import Node

WRAPPER_RULES: Final = frozenset({"unwrap_arguments", "unwrap_any", "unwrap_scalar", "call_envelope", "nest_arguments"})
# Names under which arguments were seen in other calls; beside a blank and the tool's own name no other says so little.
_LOOSE_WRAPPERS: Final = WRAPPER_KEYS | {"type", "properties", "data", "options"}
# The most wrappers that are removed.
_MAX_WRAPPERS: Final = 3
# Characters of JSON text that one unit of work reads.
_READ: Final = 5


class Run(Protocol):
    """The part of the engine's run that this file uses."""

    check: Check
    policy: RepairPolicy
    work: Work
    tool: str

    def accepts(self, node: Node, value: JsonValue) -> bool: ...
    def fit(self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit: ...


def unwrap(run: Run, value: dict[str, JsonValue] | list[JsonValue]) -> Fit | None:
    """The arguments out of what was sent as such, if that is the only meaning: a whole call, a wrapper around them, or
    the members of the one object that the tool takes."""
    inner = unwrap_call(run, value)
    if inner is None and isinstance(value, dict):
        inner = unwrap_arguments(run, value, ()) or nest_arguments(run, value)
    return inner


def unwrap_arguments(run: Run, value: dict[str, JsonValue], path: Pointer) -> Fit | None:
    """The inner object of `{"arguments": {...}}`, if it is the only meaning. `path`: the wrappers removed before."""
    if len(value) > len(run.policy.drop_keys) + len(NAMING_KEYS) + 1:  # more than one key that is no plumbing
        return None
    known = list_declared(run.check.root.always)
    others = (key for key, item in value.items() if not is_plumbing(key, item, run.policy.drop_keys, run.tool))
    key, rules = next(others, None), run.policy.rules
    if len(path) >= _MAX_WRAPPERS or key is None or next(others, None) is not None or value.keys() == {key} <= known:
        return None
    inner, alone = value[key], len(value) == 1 and (key in WRAPPER_KEYS or key == run.tool)
    wraps_itself = key in known and isinstance(inner, dict) and key in inner  # under the name of one of the arguments
    if not (alone or key in _LOOSE_WRAPPERS or not key.strip("_ ") or wraps_itself):
        return None
    rule = "unwrap_arguments" if alone and "unwrap_arguments" in rules else "unwrap_any"
    path = (*path, key)
    taken: tuple[Repair, ...] = (Repair(rule, path),)
    if alone and isinstance(inner, str) and "parse_json_string" in rules:
        inner, read = _read_object(run, inner, path)
        taken += read
    if isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], dict) and "first_of_one" in rules:
        inner = inner[0]
        taken += (Repair("first_of_one", path),)
    if not isinstance(inner, dict):
        return _given_to_the_one_key(run, inner, known, path) if alone else None
    if rule not in rules:
        return None
    fitted = run.fit(run.check.root, inner, (), rules - LAST_RESORTS) if known & inner.keys() else None
    if fitted is None or not fitted.accepted:
        fitted = unwrap_arguments(run, inner, path)
    return None if fitted is None else Fit(fitted.value, (*taken, *fitted.repairs), True)


# --- the whole call, sent as its arguments ----------------------------------------------------------------------------
_NAMES: Final = frozenset({"name", "function", "tool", "tool_name", "function_name", "action", "recipient_name"})
_ARGUMENTS: Final = WRAPPER_KEYS | {
    "tool_input", "action_input", "tool_args", "tool_arguments", "function_args", "function_arguments"
}  # fmt: skip
_BESIDE: Final = frozenset({"id", "type", "call_id", "index", "toolUseId", "jsonrpc"})
_CALL_TYPES: Final = ("function", "function_call", "tool_call", "tool_use")
_OUTER: Final = frozenset(
    ["function", "function_call", "functionCall", "tool_call", "toolCall", "tool_calls", "tool_use", "toolUse",
     "tool_uses", "tool", "call"]
)  # fmt: skip
# MCP's own message around a call.
_METHOD: Final = "tools/call"


def unwrap_call(run: Run, value: dict[str, JsonValue] | list[JsonValue]) -> Fit | None:
    """The arguments out of a whole call that was sent as its own arguments, where it names this tool and nothing stands
    beside it: in the shapes of OpenAI, Anthropic, LangChain and their kin."""
    if "call_envelope" not in run.policy.rules or not run.tool:
        return None
    path, inner = _find_call(value, run.tool, folds="tool_name_fold" in run.policy.rules) or ((), None)
    made: tuple[Repair, ...] = (Repair("call_envelope", path),)
    if isinstance(inner, str):
        inner, read = _read_object(run, inner, path)
        made += read
    fitted = run.fit(run.check.root, inner, (), run.policy.rules) if isinstance(inner, dict) else None
    return Fit(fitted.value, (*made, *fitted.repairs), True) if fitted is not None and fitted.accepted else None


def _read_object(run: Run, text: str, path: Pointer) -> tuple[JsonValue, tuple[Repair, ...]]:
    """The object in JSON text with the repairs of that; any other text as it is."""
    run.work.spend(len(text) // _READ)
    read = read_inside(text, Site(frozenset({"object"}), False, None, classes=run.policy.rules & TEXT_RULES))
    if read is None:
        return text, ()
    return read[0], tuple(Repair(name, path) for name in ("parse_json_string", *read[1]))


def _find_call(value: JsonValue, tool: str, *, folds: bool) -> tuple[Pointer, JsonValue] | None:
    """The place of the arguments in a call's envelope, and what stands there. `folds`: another spelling of the tool
    counts."""
    path: Pointer = ()
    for _ in range(_MAX_WRAPPERS + 1):
        if isinstance(value, list):
            if len(value) != 1:
                return None
            path, value = (*path, 0), value[0]
            continue
        if not isinstance(value, dict) or value.get("type", "function") not in _CALL_TYPES:
            return None
        rest = value.keys() - _BESIDE
        if len(rest) > 2:
            return None
        if value.get("method") == _METHOD and rest == {"method", "params"}:
            path, value = (*path, "params"), value["params"]
            continue
        if len(rest) == 1 and rest <= _OUTER and isinstance(value[min(rest)], dict | list):
            path, value = (*path, min(rest)), value[min(rest)]
            continue
        names, arguments = sorted(rest & _NAMES), sorted(rest & _ARGUMENTS)
        if len(rest) != 2 or len(names) != 1 or len(arguments) != 1 or not isinstance(value[names[0]], str):
            return None
        named = value[names[0]]
        is_this = named == tool or trim(named, {tool}) == tool or (folds and fold(named) == fold(tool))
        return ((*path, arguments[0]), value[arguments[0]]) if is_this else None
    return None


def nest_arguments(run: Run, value: dict[str, JsonValue]) -> Fit | None:
    """The arguments under the one key that the tool declares and requires, an object that declares all of them; not
    where that key's name turns or tells what its members mean (`exclude`, `old`)."""
    nodes = run.check.root.always
    if "nest_arguments" not in run.policy.rules or not value:
        return None
    known = list_declared(nodes)
    if len(known) != 1 or known != list_required(nodes):
        return None
    key = min(known)
    schemas = list_member_schemas(nodes, key, run.work)
    inner = list_declared(part for schema in schemas for part in schema.always)
    if key in value or not value.keys() <= inner or not TELLING_WORDS.isdisjoint(split_words(key)):
        return None
    fitted = run.fit(run.check.root, {key: value}, (), run.policy.rules)
    if not fitted.accepted or not isinstance(fitted.value, dict) or not isinstance(fitted.value.get(key), dict):
        return None
    return Fit(fitted.value, (Repair("nest_arguments", ()), *fitted.repairs), True)


# Words of keys whose value may have arguments of its own, and what a command has that a list of its arguments may lack.
_HAS_ARGUMENTS: Final = frozenset(
    ["command", "cmd", "commands", "script", "code", "program", "executable", "binary", "function", "tool", "method",
     "sql", "template", "workflow", "job", "task", "query_id", "procedure", "app"]
)  # fmt: skip
_PROSE: Final = re.compile(r"\A[A-Za-z][\w./-]*\s+[A-Za-z]")


def _given_to_the_one_key(run: Run, inner: JsonValue, known: Set[str], path: Pointer) -> Fit | None:
    """One value under a wrapper's name, taken as the value of the only key that the tool declares."""
    if "unwrap_scalar" not in run.policy.rules or len(known) != 1 or inner is None:
        return None
    if isinstance(inner, str) and inner.lstrip()[:1] in ("{", "[", "-", "/", "+", "="):
        return None
    is_prose = path[-1] == "arguments" and _PROSE.search(str(inner)) is not None
    if not is_prose and not _HAS_ARGUMENTS.isdisjoint(split_words(min(known))):
        return None  # what stands there may be the arguments of the command
    whole: dict[str, JsonValue] = {min(known): inner}
    accepted = run.accepts(run.check.root, whole)
    return Fit(whole, (Repair("unwrap_scalar", path),), True) if accepted else None
