"""Keywords that one Python expression can judge: types, fixed values, limits of texts and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.check.numbers import PLAIN_INT, Bound, Step, make_equality_key
from proxy.core.check.program import Program
from proxy.core.json.jsontext import make_decimal
from proxy.core.model.values import JsonValue
from proxy.core.schema.drafts import Draft
from proxy.core.schema.nodes import Node

# Writes the condition of a keyword: (program, node, keyword's value, variable, expression of its type) -> expression.
# "" means that the keyword asserts nothing here.
Condition = Callable[[Program, Node, JsonValue, str, str], str]

# The Python type that a value must have for a group of keywords to apply to it. {t} is the expression of its type.
GUARDS: Final = {"object": "{t} is dict", "array": "{t} is list", "string": "{t} is str", "number": "{t} in NUMBERS"}

_TYPE_TESTS: Final = {
    **GUARDS,
    "null": "{v} is None",
    "boolean": "{t} is bool",
    "integer": "({t} is int or {t} in INEXACT and integral({v}))",
}


def _type(_program: Program, node: Node, named: JsonValue, v: str, t: str) -> str:
    """`type`: one of the named types. Draft 4 goes by the spelling of a number, later drafts by its value."""
    names = [named] if isinstance(named, str) else list(dict.fromkeys(named))
    if "number" in names:
        names = [name for name in names if name != "integer"]
    tests = dict(_TYPE_TESTS)
    if node.draft is Draft.D4:
        tests["integer"] = "({t} is int or {t} in INEXACT and integer_spelling({v}))"
    names.sort(key=lambda name: name in ("integer", "number"))  # the expensive tests come last
    return " or ".join(tests[name].format(t=t, v=v) for name in names)


def _write_listed(program: Program, _node: Node, values: list[JsonValue], v: str, t: str) -> str:
    """`enum` and `const`: strings by set, everything else by its equality key."""
    strings = frozenset(item for item in values if type(item) is str)
    others = [item for item in values if type(item) is not str]
    tests = []
    if len(strings) == 1:
        tests.append(f"{v} == {next(iter(strings))!r}")
    elif strings:
        tests.append(f"{t} is str and {v} in {program.constant('among', strings)}")
    tests += [f"{v} is {item}" for item in (None, True, False) if any(item is other for other in others)]
    rest = [item for item in others if item is not None and type(item) is not bool]
    if rest and all(type(item) is int and abs(item) < PLAIN_INT for item in rest):
        ints = program.constant("among", frozenset(rest))
        tests.append(f"({v} in {ints} if {t} is int else {t} in INEXACT and key({v}) in {ints})")
    elif rest:
        keys = program.constant("among", frozenset(map(make_equality_key, rest)))
        tests.append(f"{t} is not str and key({v}) in {keys}")
    return " or ".join(tests) or "False"


def _length(comparison: str) -> Condition:
    return lambda _program, _node, limit, v, _t: f"len({v}) {comparison} {int(make_decimal(limit))}"


def _limit(comparison: str, edge: str) -> Condition:
    def write(program: Program, node: Node, limit: JsonValue, v: str, t: str) -> str:
        if type(limit) is bool:  # draft 4: it modifies the keyword beside it, which is written there
            return ""
        is_exclusive = node.draft is Draft.D4 and node.get("exclusiveM" + edge) is True
        operator = comparison.rstrip("=") if is_exclusive else comparison
        bound = Bound(limit)
        near = program.constant("near", bound.near)
        exact = f"{program.constant('bound', bound)}.compare({v}) {operator} 0"
        # Compares a float other than the limit itself as `compare` would, without calling it.
        apart = f"{v} > {near}" if operator in (">=", ">") else f"not {v} > {near}"
        exact = f"({apart} if {t} is float and {v} != {near} else {exact})"
        # For an int, b <= v is ceil(b) <= v, and b < v is floor(b) < v; the same holds the other way round.
        upward = operator in (">=", "<")
        whole = bound.ceiling if upward else bound.floor
        return exact if whole is None else f"({v} {operator} {whole} if {t} is int else {exact})"

    return write


def _multiple(program: Program, _node: Node, step: JsonValue, v: str, t: str) -> str:
    made = Step(step)
    exact = f"{program.constant('step', made)}.divides({v})"
    return exact if made.whole is None else f"({v} % {made.whole} == 0 if {t} is int else {exact})"


def _format(program: Program, node: Node, name: JsonValue, v: str, _t: str) -> str:
    check = program.format(name, node)
    return "" if check is None else f"{check}({v})"


# Keyword -> the type it applies to ("" for every type), and what writes the condition: true where the keyword is
# satisfied, for a value of that type.
CONDITIONS: Final[dict[str, tuple[str, Condition]]] = {
    "type": ("", _type),
    "enum": ("", _write_listed),
    "const": ("", lambda program, node, value, v, t: _write_listed(program, node, [value], v, t)),
    "minLength": ("string", _length(">=")),
    "maxLength": ("string", _length("<=")),
    "pattern": ("string", lambda program, _node, pattern, v, _t: f"{program.pattern(pattern)[0]}({v})"),
    "format": ("string", _format),
    "minimum": ("number", _limit(">=", "inimum")),
    "maximum": ("number", _limit("<=", "aximum")),
    "exclusiveMinimum": ("number", _limit(">", "-")),
    "exclusiveMaximum": ("number", _limit("<", "-")),
    "multipleOf": ("number", _multiple),
    "minItems": ("array", _length(">=")),
    "maxItems": ("array", _length("<=")),
    "uniqueItems": ("array", lambda _program, _node, wanted, v, _t: f"unique({v})" if wanted is True else ""),
    "minProperties": ("object", _length(">=")),
    "maxProperties": ("object", _length("<=")),
}


def condition(program: Program, node: Node, keyword: str, v: str, t: str, *, report: bool = False) -> str:
    """The condition of one keyword of `CONDITIONS`, for a value of its type. A pattern that runs into its limit ends a
    verdict at once; in a report it only counts as broken."""
    value = node.keywords[keyword]
    if report and keyword == "pattern":
        search, is_linear = program.pattern(value)
        return f"{search}({v})" if is_linear else f"bounded({search}, {v})"
    return CONDITIONS[keyword][1](program, node, value, v, t)


def sole_group(node: Node) -> str | None:
    """The group of `GUARDS` for a node's `type`, where exactly one allowed type has a group."""
    named = node.types
    if named is None or len(named) != 1:
        return None
    (name,) = named
    return {"integer": "number"}.get(name, name) if name in _TYPE_TESTS else None
