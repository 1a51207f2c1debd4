"""Rules about arguments: a call that a rule refuses is refused in every other form of it, wherever the rule says it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proxy.core.model.values import ABSENT
from proxy.extensions.access.access_section import read_allow, read_deny
from proxy.extensions.access.core.access_rules import fits_arguments
from proxy.extensions.access.core.rule_schemas import compile_arguments, list_open_places, negate_arguments
from tests.generated import examples

# A place in a schema: the schema around that of a value, and the arguments around the value.
Place = tuple[Callable[[Any], Any], Callable[[Any], Any]]

# Guards of a text: each accepts GOOD and refuses BAD, some of them all texts but GOOD.
GOOD: Final = "/data/a"
BAD: Final = "/etc/passwd"
GUARDS: Final[list[Any]] = [
    {"pattern": "^/data/"},
    {"const": GOOD},
    {"enum": [GOOD, "/data/b"]},
    {"not": {"pattern": "^/etc/"}},
    {"not": {"const": BAD}},
    {"not": {"enum": [BAD]}},
    {"not": {"not": {"pattern": "^/data/"}}},
    {"if": {"pattern": "^/etc/"}, "then": False},
    {"if": {"pattern": "^/data/"}, "else": False},
    {"$ref": "#/$defs/guard"},
]
DEFS: Final = {"guard": {"pattern": "^/data/"}}
WRITES: Final = {"properties": {"mode": {"const": "write"}}}
READS: Final = {"properties": {"mode": {"const": "read"}}}


def _write(inner: Any) -> Any:
    return {**inner, "mode": "write"} if isinstance(inner, dict) else inner


# Places in an object whose key `path` holds the value.
OBJECT: Final[dict[str, Place]] = {
    "plain": (lambda inner: inner, lambda value: value),
    "then": (lambda inner: {"if": WRITES, "then": inner}, _write),
    "required then": (lambda inner: {"if": {**WRITES, "required": ["mode"]}, "then": inner}, _write),
    "else": (lambda inner: {"if": READS, "else": inner}, _write),
    "dependentSchemas": (lambda inner: {"required": ["mode"], "dependentSchemas": {"mode": inner}}, _write),
    "dependencies": (lambda inner: {"required": ["mode"], "dependencies": {"mode": inner}}, _write),
    "allOf": (lambda inner: {"allOf": [{}, inner]}, lambda value: value),
    "anyOf": (lambda inner: {"anyOf": [inner, False]}, lambda value: value),
    "oneOf": (lambda inner: {"oneOf": [inner, False]}, lambda value: value),
    "ref": (lambda inner: {"$ref": "#/$defs/made", "$defs": {"made": inner}}, lambda value: value),
}
# Places of the value below `path`.
BELOW: Final[dict[str, Place]] = {
    "value": (lambda guard: guard, lambda value: value),
    "items": (lambda guard: {"items": guard}, lambda value: ["/data/a", value]),
    "prefixItems": (lambda guard: {"prefixItems": [guard]}, lambda value: [value]),
    "items behind": (lambda guard: {"prefixItems": [guard], "items": guard}, lambda value: ["/data/a", value]),
    "unevaluatedItems": (lambda guard: {"unevaluatedItems": guard}, lambda value: [value]),
    "contains": (lambda guard: {"contains": guard}, lambda value: [value]),
    "no item": (lambda guard: {"contains": {"not": guard}, "minContains": 0, "maxContains": 0}, lambda value: [value]),
    "additionalProperties": (lambda guard: {"additionalProperties": guard}, lambda value: {"x": value}),
    "unevaluatedProperties": (lambda guard: {"unevaluatedProperties": guard}, lambda value: {"x": value}),
    "patternProperties": (
        lambda guard: {"patternProperties": {"^x$": guard}, "additionalProperties": False},
        lambda value: {"x": value},
    ),
    "propertyNames": (lambda guard: {"propertyNames": guard}, lambda value: {value: "x"}),
    "no other key": (
        lambda _: {"patternProperties": {"^/data/": {}}, "additionalProperties": False},
        lambda value: {value: "x"},
    ),
    "object": (lambda guard: {"properties": {"inner": guard}}, lambda value: {"inner": value}),
}
# Places that say nothing about keys.
ANY_KEY: Final = ("additionalProperties", "unevaluatedProperties")
RESPELLED: Final = [
    BAD, "/data/../etc/passwd", "/data/%2e%2e/etc/passwd", "/data/..;/../etc/passwd", "/data/.. /etc/passwd",
    "/data\\..\\..\\etc/passwd", "//etc//passwd", "/./etc/passwd", "/data/．．/etc/passwd",
]  # fmt: skip


def define(schema: Any) -> Any:
    return {**schema, "$defs": {**DEFS, **schema.get("$defs", {})}}


def allows(schema: Any, arguments: Any) -> bool:
    """Returns whether a rule allows arguments."""
    found = read_allow([{"arguments": define(schema)}])
    assert found is not None
    return fits_arguments(found[0], arguments)


def _list_values(below: str, bad: str, *, only_good: bool) -> list[Any]:
    """Forms of a refused value below `path`, none of which may pass."""
    placed = BELOW[below][1](bad)
    forms = [placed, [placed], [[placed]]]
    swapped = [] if below in ANY_KEY else [{bad: GOOD}]
    return [*forms, *swapped, {"y": placed}, {bad: placed}] if only_good else forms


def _list_calls(call: dict[str, Any], path: Any) -> Iterator[dict[str, Any]]:
    """A refused call, with its keys respelled and missing, and its condition in another form."""
    rest = {key: value for key, value in call.items() if key != "path"}
    good = {**rest, "path": path}
    yield from (call, rest, {**rest, "Path": call["path"]}, {**good, "Path": call["path"]}, {**good, "PATH": GOOD})
    if "mode" in call:
        plain = {"path": call["path"]}
        yield from (plain, {**plain, "mode": [call["mode"]]}, {**plain, "Mode": call["mode"]}, {**plain, "mode": {}})


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(GUARDS),
    st.sampled_from(list(BELOW)),
    st.lists(st.sampled_from(list(OBJECT)), max_size=2, unique=True),
    st.sampled_from(RESPELLED),
)
def test_rejects_every_form_of_a_rejected_call(guard: Any, below: str, around: list[str], bad: str) -> None:
    schema: Any = {"properties": {"path": BELOW[below][0](guard)}}
    around = sorted(around, key="ref".__eq__)  # its definitions belong at the root
    for name in around:
        schema = OBJECT[name][0](schema)

    def put(value: Any) -> dict[str, Any]:
        call = {"path": value}
        for name in around:
            call = OBJECT[name][1](call)
        return call

    good = BELOW[below][1](GOOD)
    assert allows(schema, put(good))
    assume(not list(list_open_places(compile_arguments(define(schema))[-1])))
    accepts_other = any(word in str(guard) for word in ("^/etc/", BAD))
    for value in _list_values(below, bad, only_good=not accepts_other):
        for call in _list_calls(put(value), good):
            assert not allows(schema, call), (schema, call)


def test_rejects_a_map_with_two_keys_that_may_be_the_same() -> None:
    schema = {"properties": {"path": {"propertyNames": {"pattern": "^/data/"}}}}
    assert allows(schema, {"path": {"/data/a": 1, "/data/b": 2}})
    assert not allows(schema, {"path": {"/data/a": 1, "/data//a": 2}})
    assert not allows(schema, {"path": {"/data/a": 1, "/data/%61": 2}})


def test_allows_a_call_without_a_key_that_must_not_be_there() -> None:
    schema = {"properties": {"path": {}, "force": False}}
    shown = [{"path": 1}, {"path": 1, "force": 1}, {"path": 1, "Force": 1}, {"path": 1, "force": None}]
    assert [True, False, False, False] == [allows(schema, call) for call in shown]
    other = {"not": {"required": ["force"]}}
    assert [True, False, False, False] == [allows(other, call) for call in shown]


def test_rejects_what_the_schema_as_written_rejects() -> None:
    schema = {"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]}
    assert [False, True, False] == [allows(schema, call) for call in ({"a": 1}, {"a": 1, "b": 3}, {"a": 1, "b": 2})]


def test_closes_items_of_older_drafts() -> None:
    draft = "http://json-schema.org/draft-07/schema#"
    guard = {"items": [{"pattern": "^/data/"}], "additionalItems": {"pattern": "^/data/"}}
    schema = {"$schema": draft, "properties": {"path": guard}}
    shown: list[Any] = [[GOOD], [GOOD, GOOD], [], [[GOOD]], [GOOD, [BAD]], [GOOD, BAD]]
    assert [True, True, False, False, False, False] == [allows(schema, {"path": value}) for value in shown]


# --- deny -------------------------------------------------------------------------------------------------------------
# Schemas of a text that deny BAD and accept GOOD.
DENIED: Final[list[Any]] = [
    {"pattern": "^/etc/"},
    {"const": BAD},
    {"enum": [BAD, "/etc/shadow"]},
    {"type": "string", "pattern": "^/etc/"},
    {"pattern": "^/etc/", "minLength": 2},
    {"not": {"pattern": "^/data/"}},
    {"not": {"const": GOOD}},
    {"not": {"not": {"pattern": "^/etc/"}}},
    {"allOf": [{"pattern": "^/etc/"}, {"minLength": 1}]},
]
# Places of the value below `path`: one such item or key is enough.
ANY_OF: Final[dict[str, Place]] = {
    "value": (lambda guard: guard, lambda value: value),
    "object": (lambda guard: {"properties": {"inner": guard}}, lambda value: {"inner": value}),
    "contains": (lambda guard: {"contains": guard}, lambda value: [value]),
    "not all items": (lambda guard: {"not": {"items": {"not": guard}}}, lambda value: [value]),
    "prefixItems": (lambda guard: {"prefixItems": [guard]}, lambda value: [value]),
    "not all keys": (lambda guard: {"not": {"additionalProperties": {"not": guard}}}, lambda value: {"x": value}),
    "not all names": (lambda guard: {"not": {"propertyNames": {"not": guard}}}, lambda value: {value: "x"}),
}
NAMES_ANY: Final = ("not all keys", "not all names")
WRAPPED: Final[dict[str, Place]] = {
    "plain": (lambda inner: inner, lambda call: call),
    "allOf": (lambda inner: {"allOf": [{"properties": {"path": {}}}, inner]}, lambda call: call),
    "mode": (lambda inner: {"allOf": [inner, WRITES]}, _write),
    "below": (lambda inner: {"properties": {"file": inner}}, lambda call: {"file": call}),
}


def denies(schema: Any, arguments: Any) -> bool:
    """Returns whether a rule of `deny` denies arguments."""
    found = read_deny([{"arguments": schema}])
    assert found is not None
    return not fits_arguments(found[0], arguments)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(DENIED),
    st.sampled_from(list(ANY_OF)),
    st.sampled_from(list(WRAPPED)),
    st.sampled_from(RESPELLED),
)
def test_rejects_every_form_of_a_denied_call(guard: Any, below: str, around: str, bad: str) -> None:
    schema = WRAPPED[around][0]({"properties": {"path": ANY_OF[below][0](guard)}})
    assert [] == list(list_open_places(compile_arguments(negate_arguments(schema))[-1], denies=True))

    def put(value: Any) -> Any:
        return WRAPPED[around][1]({"path": value})

    good, placed = ANY_OF[below][1](GOOD), ANY_OF[below][1](bad)
    assert not denies(schema, put(good))
    assert not denies(schema, {**put(good), "other": 1})
    values = [placed, [placed], [[placed]], None, 7, True, ...]
    values += [{"y": placed}, {bad: placed}, {bad: GOOD}] if below not in NAMES_ANY else []
    values += [[GOOD, bad], [bad, GOOD]] if below in ("contains", "not all items") else []
    values += [{**placed, "/data/y": "/data/z"}] if below in NAMES_ANY else []
    call: Any
    for value in values:
        call = put(value)
        inner = call.get("file", call)
        if value is ...:
            del inner["path"]
        assert denies(schema, call), (schema, call)
        assert denies(schema, {**call, "other": 1, "/data/x": [GOOD]}), (schema, call)
    inner = (twin := put(good)).get("file", twin)
    inner["Path"] = placed
    assert denies(schema, twin), (schema, twin)
    if around == "mode":
        modes: list[Any] = [["write"], {}, None, ...]
        for mode in modes:
            call = {key: value for key, value in {**put(placed), "mode": mode}.items() if value is not ...}
            assert denies(schema, call), (schema, call)
        assert not denies(schema, {**put(placed), "mode": "read"})
    if around == "below":
        calls: list[Any] = [{}, {"File": put(good)["file"]}, {"file": [put(placed)["file"]]}, put(placed)["file"]]
        for other in calls:
            assert denies(schema, other), (schema, other)


def test_denies_arguments_that_cannot_be_read() -> None:
    schema = {"properties": {"path": {"pattern": "^/etc/"}}}
    unclear: list[Any] = [ABSENT, [], {"path": "/a%2525252525252525252525252525"}, {"path": "/a\u0000"}]
    assert [True] * 4 == [denies(schema, call) for call in unclear]
    assert not denies(schema, {"path": "/a"})


def test_denies_everything_if_the_schema_says_nothing_of_values() -> None:
    schemas: list[Any] = [{}, {"properties": {"path": {}}}, {"type": "object"}]
    for schema in schemas:
        assert [True] * 3 == [denies(schema, call) for call in ({}, {"path": 1}, {"other": "x"})]
