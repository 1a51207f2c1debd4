"""The rule `integral_float` on valid arguments: `3.0` becomes `3` where an integer is declared.

JSON Schema calls 3.0 an integer (2020-12 validation 6.1.1); Go, Rust and many a command line refuse it. It is the same
number in another spelling, and the one case in which a valid call is written anew (repair.md section 3).
"""

from __future__ import annotations

from proxy.core.jsontext import FRACTIONS, LosslessFloat, as_decimal, is_integral
from proxy.core.members import schemas_of
from proxy.core.model import JsonValue, Pointer, Repair
from proxy.core.policy import RepairPolicy
from proxy.core.proposals import NONE, integral
from proxy.core.rules import RULES
from proxy.core.schema import Node
from proxy.core.sites import applies_always, facts
from proxy.core.validation import Check
from proxy.core.work import TooMuchWorkError, Work

_RULE = RULES["integral_float"].name
# Work for one call: (schema, value) pairs looked at.
_LIMIT = 500_000
_NONZERO = tuple(b"%d" % digit for digit in range(1, 10))


def respell_integers(check: Check, value: JsonValue, policy: RepairPolicy) -> tuple[JsonValue, tuple[Repair, ...]]:
    """A valid value with its integral floats written as integers, never inside a union, and the repairs made.

    The same object where there is nothing to do, or where the result would not be valid. Never raises.
    """
    if _RULE not in policy.rules:
        return value, ()
    if not has_integral_float(value):
        return value, ()
    repairs: list[Repair] = []
    try:
        respelt = _respell([check.root], value, (), repairs, Work(_LIMIT))
    except TooMuchWorkError:
        return value, ()
    if not repairs or not check.accepts(respelt):
        return value, ()
    return respelt, tuple(repairs)


def has_integral_float(value: JsonValue) -> bool:
    """Whether there is anything to do at all. Many a valid call is asked, so no generator walks over it."""
    found = [value]
    for current in found:  # grows under way
        kind = type(current)
        if kind is dict:
            found += current.values()
        elif kind is list:
            found += current
        elif kind in FRACTIONS and is_integral_float(current):
            return True
    return False


def is_integral_float(value: JsonValue) -> bool:
    """Whether a value is an integral number, but not spelt as an integer (`-0` is spelt as one)."""
    kind = type(value)
    if kind is not LosslessFloat:
        # Exact: the shortest spelling of a float has a fraction just where the float has one.
        return kind is float and bool(value.is_integer())
    text = bytes(value)
    if text.endswith(_NONZERO) and text.find(b".") >= 0 and text.lower().find(b"e") < 0:  # `in` is slower (jsontext)
        return False  # the digits of its fraction do not end in 0: no need to work it out
    return text != b"-0" and is_integral(as_decimal(value))


def _respell(schemas: list[Node], value: JsonValue, path: Pointer, repairs: list[Repair], work: Work) -> JsonValue:
    """The value under all schemas that apply to it at once."""
    nodes = list({id(part): part for schema in schemas for part in applies_always(schema)}.values())
    work.spend(1 + len(nodes))
    if any(part.any_of or part.one_of for part in nodes) or any(_switched_off(schema) for schema in schemas):
        return value
    if isinstance(value, FRACTIONS):
        return _integer(nodes, value, path, repairs)
    if not isinstance(value, dict | list):
        return value
    members = value.items() if isinstance(value, dict) else enumerate(value)
    made = {step: _respell(schemas_of(nodes, step, work), item, (*path, step), repairs, work) for step, item in members}
    return made if isinstance(value, dict) else list(made.values())


def _integer(nodes: list[Node], value: float | LosslessFloat, path: Pointer, repairs: list[Repair]) -> JsonValue:
    if not is_integral_float(value) or not any(part.types == frozenset({"integer"}) for part in nodes):
        return value
    whole = integral(as_decimal(value))
    if whole is NONE:
        return value
    repairs.append(Repair(_RULE, path))
    return whole


def _switched_off(schema: Node) -> bool:
    allowed = facts(schema).allowed
    return allowed is not None and _RULE not in allowed
