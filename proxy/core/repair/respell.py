"""Respells accepted arguments that a tool may still refuse: integers written as floats, keys in another case.

The rule `integral_float` writes `3.0` as `3` if an integer is declared. JSON Schema counts 3.0 as an integer (2020-12
validation 6.1.1); Go, Rust and many command lines refuse it. It is the same number in another spelling, and the only
case in which a valid call is changed, in those bytes and no others (docs/repair.md). A number with an exponent stays as
it came. If the operator refuses unknown keys (`unknown_keys: refuse`), the rule `key_case` applies to keys that the
schema accepts as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from proxy.core.check.validation import Check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.contract.toolname import is_same_tool, trim
from proxy.core.explain.places import find_child, find_value, list_alternatives, list_declared_keys, list_members
from proxy.core.json.jsonspan import replace_values
from proxy.core.json.jsontext import FRACTIONS, LosslessFloat, is_integral, make_decimal, walk
from proxy.core.model.values import JsonValue, Pointer, Repair
from proxy.core.model.work import RESPELLING, TooMuchWorkError, Work, borrow_work
from proxy.core.rules.branches import Fit
from proxy.core.rules.facts import list_declared, list_member_schemas, list_required, read_facts
from proxy.core.rules.keys import rename_keys
from proxy.core.rules.proposals import Site, make_integral, read_inside
from proxy.core.rules.rules import RULES, TEXT_RULES
from proxy.core.rules.style import match_names
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

# --- removes wrappers around a call's arguments -----------------------------------------------------------------------
# Removes wrappers around a call's arguments, such as `{"arguments": {...}}`, if that is the only meaning.
#
# Only the arguments as a whole are examined. A wrapper's name is undeclared and has no key beside it; its content holds
# a declared key. Content that does not validate, even after repair, is returned unaccepted, for the answer to describe.

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
    """Returns the arguments inside the sent ones, if that is the only meaning. They are those of a whole call, of a
    wrapper around them, or the members of the one object that the tool takes."""
    inner = unwrap_call(run, value)
    if inner is None and isinstance(value, dict):
        inner = unwrap_arguments(run, value, ()) or nest_arguments(run, value)
    return inner


def unwrap_arguments(run: Run, value: dict[str, JsonValue], path: Pointer) -> Fit | None:
    """The inner object of `{"arguments": {...}}`, if it is the only meaning. `path`: the wrappers removed before."""
    if len(value) != 1 or len(path) >= _MAX_WRAPPERS or "unwrap_arguments" not in run.policy.rules:
        return None
    known = list_declared(run.check.root.always)
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
    """Returns the arguments of a whole call that was sent as its own arguments, if it names this tool and has nothing
    else beside it. The shapes are those of OpenAI, Anthropic, LangChain and their kin."""
    if "call_envelope" not in run.policy.rules or not run.tool:
        return None
    call = _find_call(value, run.tool, folds="tool_name_fold" in run.policy.rules)
    if call is None:
        return None
    path, inner = call
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
    """Returns the place of the arguments in a call's envelope, and their value. `folds`: another identifier style of
    the tool's name counts."""
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
        if len(rest) == 1 and rest <= OUTER_KEYS and isinstance(value[min(rest)], (dict, list)):
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
    """Returns the arguments under the one key that the tool declares and requires, an object that declares all of them,
    if the key's name means the arguments of a call."""
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


# --- respells accepted arguments that a tool may still refuse ---------------------------------------------------------
# Every text of an integral float without an exponent holds this: `3.0`, `3.00`. Most valid calls do not, and need no
# further look.
INTEGRAL_FRACTION: Final = b".0"
_INTEGER = frozenset({"integer"})
RESPELT: Final = RULES["integral_float"].name
# From this number on, the shortest spelling of a float has an exponent.
_WITHOUT_EXPONENT: Final = 1e16
_NONZERO = tuple(b"%d" % digit for digit in range(1, 10))


def respell_integers(check: Check, value: JsonValue, policy: RepairPolicy) -> tuple[JsonValue, tuple[Repair, ...]]:
    """A valid value with its integral floats written as integers, except inside unions, and the repairs made; the same
    object where nothing changes, or the result would not be valid. Never raises."""
    if RESPELT not in policy.rules:
        return value, ()
    # Every valid call is tested; most tools have integers only at the root, so a look at few keys decides.
    keys = list_integer_keys(check)
    if not has_integral_float(value if keys is None or type(value) is not dict else [value.get(key) for key in keys]):
        return value, ()
    repairs: list[Repair] = []
    try:
        with borrow_work(RESPELLING) as work:
            respelt = _respell([check.root], value, (), repairs, work)
    except TooMuchWorkError:
        return value, ()
    return (respelt, tuple(repairs)) if repairs and check.accepts(respelt) else (value, ())


def list_integer_keys(check: Check) -> tuple[str, ...] | None:
    """The only keys of the root object that declare an integer; None: integers may be anywhere. Computed once."""
    memo: dict[str, tuple[str, ...] | None] = check.schemas.memos.setdefault("integer keys", {})
    if "root" not in memo:
        at_root = {id(node): key for key, node in check.schemas.root.properties.items()}
        found = [at_root.get(id(node)) for node in check.schemas.nodes() if node.types == _INTEGER]
        keys = tuple(key for key in found if key is not None)
        # A reference may lead to an integer from anywhere.
        is_known = not check.schemas.has_references and len(keys) == len(found)
        memo["root"] = keys if is_known else None
    return memo["root"]


def respell_text(text: bytes, value: JsonValue, repairs: Sequence[Repair]) -> bytes:
    """The text of a call in which only the numbers at these places change, which `value` holds as integers."""
    return replace_values(text, {made.path: b"%d" % find_value(value, made.path) for made in repairs})


def has_integral_float(value: JsonValue) -> bool:
    """Returns whether a value holds an integral float."""
    return any(type(inner) in FRACTIONS and is_integral_float(inner) for inner in walk(value))


def is_integral_float(value: JsonValue) -> bool:
    """Returns whether a value is an integral number that is not spelt as an integer (`-0` is spelt as one)."""
    kind = type(value)
    if kind is not LosslessFloat:
        # This is exact: the shortest spelling of a float has a fraction exactly if the float has one.
        return kind is float and bool(value.is_integer()) and abs(value) < _WITHOUT_EXPONENT
    text = bytes(value)
    if text.find(b".") < 0:
        return False  # an integer with an exponent, or -0: both stay as they are
    if text.endswith(_NONZERO) or text.lower().find(b"e") >= 0:  # `in` is slower (jsontext)
        return False  # the fraction is not zero, or an exponent could make a few bytes a long row of digits
    return is_integral(make_decimal(value))


def _respell(schemas: list[Node], value: JsonValue, path: Pointer, repairs: list[Repair], work: Work) -> JsonValue:
    """The value under all schemas that apply to it."""
    nodes = list({id(part): part for schema in schemas for part in schema.always}.values())
    work.spend(1 + len(nodes))
    if _is_switched_off(RESPELT, schemas) or any(part.any_of or part.one_of for part in nodes):
        return value
    is_wanted = is_integral_float(value) and any(part.types == _INTEGER for part in nodes)
    if is_wanted and (whole := make_integral(make_decimal(value))) is not None:
        repairs.append(Repair(RESPELT, path))
        return whole
    if not isinstance(value, (dict, list)):
        return value
    made = {
        step: _respell(list_member_schemas(nodes, step, work), item, (*path, step), repairs, work)
        for step, item in list_members(value)
    }
    return made if isinstance(value, dict) else list(made.values())


def _is_switched_off(rule: str, schemas: Iterable[Node]) -> bool:
    allowed = [read_facts(schema).allowed for schema in schemas]
    return any(each is not None and rule not in each for each in allowed)


# --- keys in another case ---------------------------------------------------------------------------------------------
_KEY_CASE: Final = "key_case"
_MAX_PATH: Final = 64


def respell_keys(check: Check, value: JsonValue, policy: RepairPolicy) -> tuple[JsonValue, tuple[Repair, ...]]:
    """The value with undeclared keys renamed to the declared keys they mean, still to be judged, and the repairs made;
    the same object where nothing changes. Never raises."""
    if _KEY_CASE not in policy.rules:
        return value, ()
    repairs: list[Repair] = []
    try:
        with borrow_work(RESPELLING) as work:
            made = _respell_members(check, (check.root,), value, (), repairs, work)
    except (TooMuchWorkError, RecursionError):
        return value, ()
    return (made, tuple(repairs)) if repairs else (value, ())


def _respell_members(
    check: Check, nodes: tuple[Node, ...], value: JsonValue, path: Pointer, repairs: list[Repair], work: Work
) -> JsonValue:
    if not isinstance(value, (dict, list)) or len(path) >= _MAX_PATH or _is_switched_off(_KEY_CASE, nodes):
        return value
    parts = list_alternatives(check, nodes, value, work)
    if isinstance(value, dict):
        known = list_declared_keys(parts)
        # A key that some branch of a union declares gets no other name.
        branches = [branch for part in parts for branch in (*part.any_of, *part.one_of)]
        named = known.union(*(list_declared(branch.always) for branch in branches))
        targets = match_names([key for key in value if key not in named], known) if known else {}
        rivals = Counter(targets.values())  # two unknown keys that mean the same stay
        names = {key: (_KEY_CASE, to) for key, to in targets.items() if to not in value and rivals[to] == 1}
        value, made = rename_keys(value, path, names)
        repairs.extend(made)
    members: dict[str | int, JsonValue] = {}
    for step, item in list_members(value):
        work.spend(1 + len(parts))
        below = tuple({id(child): child for part in parts if (child := find_child(part, step)) is not None}.values())
        members[step] = _respell_members(check, below, item, (*path, step), repairs, work) if below else item
    return members if isinstance(value, dict) else list(members.values())
