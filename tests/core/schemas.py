"""Random schemas for property tests: every keyword, small, often satisfiable; and odd ones that may not compile."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from proxy.core.model.values import JsonValue

KEYS: Final = ("a", "b", "start_date", "startDate", "kind", "x-y", "5")
_WORDS: Final = ("celsius", "Celsius", "KELVIN", "read_only", "read only", "1", "true", "", "null", "007")

Schema = dict[str, Any]


def _some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return st.fixed_dictionaries({}, optional=keywords)


_small: Final = st.integers(0, 3)
_scalars: Final = st.one_of(
    st.just({"type": "integer"}),
    st.just({"type": "number"}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"type": "string"}),
    st.just({}),
    st.sampled_from([True]),
    st.lists(st.sampled_from(("integer", "number", "boolean", "null", "string", "array", "object")),
    min_size=1, max_size=3,
             unique=True).map(lambda types: {"type": types}),
    st.lists(st.sampled_from(_WORDS), min_size=1, max_size=4, unique=True).map(lambda words: {"enum": words}),
    st.sampled_from([{"enum": [1, True, None, "a"]}, {"const": 1}, {"const": False}, {"const": "Paris"},
    {"enum": [1.5, 2]}]),
    _some(minimum=st.integers(-3, 3), maximum=st.integers(3, 9), multipleOf=st.sampled_from((1, 2, 0.5)))
    .flatmap(lambda limits: st.sampled_from(("integer", "number")).map(lambda kind: {"type": kind, **limits})),
    _some(minLength=_small, maxLength=st.integers(3, 9), pattern=st.sampled_from(("^[a-z0-9]*$", "e", "^.{1,5}$")))
    .map(lambda limits: {"type": "string", **limits}),
    st.sampled_from(("date", "email", "uuid", "uri")).map(lambda form: {"type": "string", "format": form}),
)  # fmt: skip


def _members(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return _some(
        properties=_members(inner),
        required=st.lists(st.sampled_from(KEYS), max_size=2, unique=True),
        additionalProperties=st.one_of(st.just(False), inner),
        patternProperties=st.dictionaries(st.sampled_from(("^a", "e$", "[0-9]")), inner, max_size=2),
        propertyNames=st.just({"maxLength": 10}),
        minProperties=_small,
        dependentRequired=st.just({"a": ["b"]}),
        dependentSchemas=inner.map(lambda schema: {"b": {"properties": {"a": schema}}}),
    ).map(lambda keywords: {"type": "object", **keywords})


def _arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return _some(
        items=inner, prefixItems=st.lists(inner, min_size=1, max_size=2), minItems=_small, maxItems=st.integers(2, 5),
        uniqueItems=st.booleans(), contains=inner,
    ).map(lambda keywords: {"type": "array", **keywords})  # fmt: skip


def _applied(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    branches = st.lists(inner, min_size=1, max_size=3)
    tagged = st.lists(st.tuples(st.sampled_from(("circle", "square", "Line")), inner), min_size=2, max_size=3).map(
        lambda pairs: {"oneOf": [
            {"type": "object", "properties": {"kind": {"const": name}, "a": schema}, "required": ["kind"]}
            for name, schema in dict(pairs).items()
        ]}
    )  # fmt: skip
    return st.one_of(
        branches.map(lambda made: {"anyOf": made}),
        branches.map(lambda made: {"oneOf": made}),
        branches.map(lambda made: {"allOf": made}),
        tagged,
        inner.map(lambda schema: {"not": schema}),
        st.tuples(inner, inner, inner).map(lambda three: dict(zip(("if", "then", "else"), three, strict=True))),
        inner.map(lambda schema: {"$defs": {"n": schema}, "properties": {"a": {"$ref": "#/$defs/n"}}}),
        inner.map(lambda schema: {**schema, "x-repair": ["string_to_integer"]} if isinstance(schema, dict) else schema),
        inner.map(lambda schema: {**schema, "default": 1} if isinstance(schema, dict) else schema),
    )


def _lifted(schema: JsonValue) -> JsonValue:
    """Definitions belong to the root: those made deeper go up, the last of a name wins."""
    found: dict[str, JsonValue] = {}

    def lift(part: JsonValue) -> JsonValue:
        if isinstance(part, list):
            return [lift(item) for item in part]
        if not isinstance(part, dict):
            return part
        made = {key: lift(item) for key, item in part.items() if key != "$defs"}
        if isinstance(part.get("$defs"), dict):
            found.update(lift(part["$defs"]))
        return made

    lifted = lift(schema)
    return {**lifted, "$defs": found} if found and isinstance(lifted, dict) else lifted


def _any_schema() -> st.SearchStrategy[JsonValue]:
    inner = st.recursive(
        _scalars, lambda below: st.one_of(_objects(below), _arrays(below), _applied(below)), max_leaves=8
    )
    return st.one_of(_objects(inner), _objects(inner), _applied(_objects(inner)), inner).map(_lifted)


_SCHEMAS: Final = _any_schema()


@st.composite
def schemas(draw: st.DrawFn) -> JsonValue:
    """Schemas of objects, of any keyword mix, three or four levels deep."""
    return draw(_SCHEMAS)


_NUMBERS: Final = st.one_of(st.integers(-5, 5), st.sampled_from((10**20, 2.0, 2.5, -0.0, 1e300)))
_TEXTS: Final = st.one_of(
    st.sampled_from(_WORDS),
    st.sampled_from(
        ("1.50", "+1", " 2 ", "1e2", "False", "[1]", '["a"]', '{"a":"1"}', "['a']", "a,b", "yes", "PARIS", "None")
    ),
    st.text(max_size=5),
)


def _any_value() -> st.SearchStrategy[JsonValue]:
    leaves = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS)
    keys = st.one_of(st.sampled_from(KEYS), st.sampled_from(("Start-Date", "A", "toolCallId", "arguments", "c")))
    return st.recursive(
        leaves,
        lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(keys, below, max_size=4)),
        max_leaves=8,
    )


_VALUES: Final = _any_value()


@st.composite
def values(draw: st.DrawFn) -> JsonValue:
    """Values as a model might send them: right types, and everything in text."""
    return draw(_VALUES)


def _any_odd_schema() -> st.SearchStrategy[JsonValue]:
    names = st.sampled_from((
        "type", "properties", "items", "required", "enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "then",
        "else",
        "minimum", "maximum", "multipleOf", "minLength", "pattern", "format", "default", "examples", "$ref", "$defs",
        "x-repair",
        "x-severity", "additionalProperties", "patternProperties", "propertyNames", "dependentRequired", "dependencies",
        "contains", "minContains", "minItems", "uniqueItems", "prefixItems", "unevaluatedProperties", "title",
        "description",
        "deprecated", "writeOnly", "x-sensitive", "exclusiveMinimum", "$schema", "minProperties",
    ))  # fmt: skip
    leaves = st.one_of(
        values(), st.sampled_from(("#", "#/$defs/a", "string", "integer", "^a+$", "(", "http://json-schema.org/draft-04/schema#")),
        st.integers(-2, 10**6), st.floats(allow_nan=False, allow_infinity=False),
    )  # fmt: skip
    return st.recursive(
        st.one_of(leaves, schemas()),
        lambda below: st.one_of(st.dictionaries(names, below, max_size=5), st.lists(below, max_size=3)),
        max_leaves=10,
    )


_ODD_SCHEMAS: Final = _any_odd_schema()


@st.composite
def odd_schemas(draw: st.DrawFn) -> JsonValue:
    """Anything a schema file may hold: keywords with wrong or strange values among right ones."""
    return draw(_ODD_SCHEMAS)
