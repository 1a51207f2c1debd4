"""Removes wrappers around a call's arguments, such as `{"arguments": {...}}`, where that is the only meaning.

Only the arguments as a whole are examined. A wrapper's name is undeclared and stands alone; its content holds a
declared key. Content that does not validate, even after repair, is returned unaccepted, for the answer to describe.
"""

from __future__ import annotations

from typing import Final, Protocol

from proxy.core.check.validation import Check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.contract.toolname import is_same_tool, trim
from proxy.core.model.values import JsonValue, Pointer, Repair
from proxy.core.model.work import Work
from proxy.core.rules.branches import Fit
from proxy.core.rules.facts import list_declared, list_member_schemas, list_required
from proxy.core.rules.proposals import Site, read_inside
from proxy.core.rules.rules import TEXT_RULES
from proxy.core.rules.vocabulary import (
    ARGUMENT_KEYS,
    BESIDE_KEYS,
    CALL_TYPES,
    MCP_METHOD,
    NAME_KEYS,
    NEST_KEYS,
    OUTER_KEYS,
    WRAPPER_KEYS,
)
from proxy.core.schema.nodes import Node

WRAPPER_RULES: Final = frozenset({"unwrap_arguments", "call_envelope", "nest_arguments"})
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
    known = list_declared(run.check.root.always)
    if len(value) != 1 or len(path) >= _MAX_WRAPPERS or "unwrap_arguments" not in run.policy.rules:
        return None
    ((key, inner),) = value.items()
    if key in known or (key not in WRAPPER_KEYS and key != run.tool):
        return None
    path = (*path, key)
    taken: tuple[Repair, ...] = (Repair("unwrap_arguments", path),)
    if isinstance(inner, str) and "parse_json_string" in run.policy.rules:
        inner, read = _read_object(run, inner, path)
        taken += read
    if not isinstance(inner, dict):
        return None
    if not known & inner.keys():
        return unwrap_arguments(run, inner, path)
    fitted = run.fit(run.check.root, inner, (), run.policy.rules)
    return Fit(fitted.value, (*taken, *fitted.repairs), fitted.accepted)


# --- the whole call, sent as its arguments ----------------------------------------------------------------------------
def unwrap_call(run: Run, value: dict[str, JsonValue] | list[JsonValue]) -> Fit | None:
    """The arguments out of a whole call that was sent as its own arguments, if it names this tool and nothing stands
    beside it: in the shapes of OpenAI, Anthropic, LangChain and their kin."""
    if "call_envelope" not in run.policy.rules or not run.tool:
        return None
    path, inner = _find_call(value, run.tool, folds="tool_name_fold" in run.policy.rules) or ((), None)
    made: tuple[Repair, ...] = (Repair("call_envelope", path),)
    if isinstance(inner, str):
        inner, read = _read_object(run, inner, path)
        made += read
    fitted = run.fit(run.check.root, inner, (), run.policy.rules) if isinstance(inner, dict) else None
    return Fit(fitted.value, (*made, *fitted.repairs), fitted.accepted) if fitted is not None else None


def _read_object(run: Run, text: str, path: Pointer) -> tuple[JsonValue, tuple[Repair, ...]]:
    """The object in JSON text with the repairs of that; any other text as it is."""
    run.work.spend(len(text) // _READ)
    read = read_inside(text, Site(frozenset({"object"}), False, None, classes=run.policy.rules & TEXT_RULES))
    if read is None:
        return text, ()
    return read[0], tuple(Repair(name, path) for name in ("parse_json_string", *read[1]))


def _find_call(value: JsonValue, tool: str, *, folds: bool) -> tuple[Pointer, JsonValue] | None:
    """The place of the arguments in a call's envelope, and what stands there. `folds`: another identifier style of the
    tool's name counts."""
    path: Pointer = ()
    for _ in range(_MAX_WRAPPERS + 1):
        if isinstance(value, list):
            if len(value) != 1:
                return None
            path, value = (*path, 0), value[0]
            continue
        if not isinstance(value, dict) or value.get("type", "function") not in CALL_TYPES:
            return None
        rest = value.keys() - BESIDE_KEYS
        if len(rest) > 2:
            return None
        if value.get("method") == MCP_METHOD and rest == {"method", "params"}:
            path, value = (*path, "params"), value["params"]
            continue
        if len(rest) == 1 and rest <= OUTER_KEYS and isinstance(value[min(rest)], dict | list):
            path, value = (*path, min(rest)), value[min(rest)]
            continue
        names, arguments = sorted(rest & NAME_KEYS), sorted(rest & ARGUMENT_KEYS)
        if len(rest) != 2 or len(names) != 1 or len(arguments) != 1 or not isinstance(value[names[0]], str):
            return None
        named = value[names[0]]
        is_this = named == tool or trim(named, {tool}) == tool or (folds and is_same_tool(named, tool))
        return ((*path, arguments[0]), value[arguments[0]]) if is_this else None
    return None


def nest_arguments(run: Run, value: dict[str, JsonValue]) -> Fit | None:
    """The arguments under the one key that the tool declares and requires, an object that declares all of them, if the
    key's name stands for the arguments of a call."""
    nodes = run.check.root.always
    if "nest_arguments" not in run.policy.rules or not value:
        return None
    known = list_declared(nodes)
    if len(known) != 1 or known != list_required(nodes) or not known <= NEST_KEYS:
        return None
    key = min(known)
    schemas = list_member_schemas(nodes, key, run.work)
    inner = list_declared(part for schema in schemas for part in schema.always)
    if key in value or not value.keys() <= inner:
        return None
    fitted = run.fit(run.check.root, {key: value}, (), run.policy.rules)
    if not fitted.accepted or not isinstance(fitted.value, dict) or not isinstance(fitted.value.get(key), dict):
        return None
    return Fit(fitted.value, (Repair("nest_arguments", ()), *fitted.repairs), True)
