"""A text that was read before gives the result of a first reading, in every way in which it can be read."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.call.jobs import read_known_text, read_text, write_text_job
from proxy.core.check.fast_types import mark_valid
from proxy.core.check.validation import Check, SchemaError, compile_check
from proxy.core.explain.undeclared import find_unknown_fields
from proxy.core.json import fast_json
from proxy.core.json.jsontext import DEFAULT_LIMITS, TextLimits, dumps, parse, read_document
from proxy.core.json.strictreader import KnownText, PlainReader, outline
from proxy.core.model.codes import Severity
from proxy.core.model.values import ABSENT, Document, Fields, JsonProblem, RawRequest
from proxy.extensions.mcp.adapters.mcpmessage import guess_message

LIMITS = TextLimits(depth=8, nodes=50)
REPAIRS = frozenset({"code_fence", "trailing_comma", "trailing_text", "python_literals"})
TEXTS = [
    b'{"a":[1,2,{"b":"c"}]}',
    b'{"a": 1.50, "b": 1e300, "c": 1E2}',
    b'{"a":-0,"b":[-0,-0.0]}',
    b'{"a":"-0"}',
    b'{"a":1,"a":2}',
    b'{"a":[1,2',
    b"",
    b"[" * 9 + b"]" * 9,
    b"[" + b"1," * 60 + b"1]",
    b'{"a":1e999}',
    b'{"a":NaN}',
    b'"\\ud800"',
    b'```json\n{"a":1}\n```',
    b'{"a":[1,2,],}',
    b'{"a":True,"b":-0,}',
    b'{"a":1} and so on',
    b"123456789012345678901234567890",
    '{"ü":"\\u00e9"}'.encode(),
]


def known(text: bytes, limits: TextLimits = LIMITS, repairs: frozenset[str] = REPAIRS) -> KnownText:
    """The text as a child process gives it back."""
    return read_known_text(read_text(write_text_job(text, limits, repairs)), text, limits, repairs)


def exactly(read: Document | JsonProblem) -> object:
    """All of a document that equality does not show: how its numbers are spelt."""
    return read if isinstance(read, JsonProblem) else (read.text, dumps(read.value), read.repairs)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("quick", [True, False])
def test_reads_a_known_text_like_a_new_one(text: bytes, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not quick:
        monkeypatch.setattr(fast_json, "read", lambda *_: ABSENT)
    assert exactly(read_document(text, LIMITS, REPAIRS)) == exactly(read_document(known(text), LIMITS, REPAIRS))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)


@given(JSON, st.integers(0, 40), st.binary(max_size=2))
def test_so_does_any_other(value: object, at: int, put: bytes) -> None:
    text = dumps(value)
    text = text[:at] + put + text[at:]
    assert exactly(read_document(text, LIMITS, REPAIRS)) == exactly(read_document(known(text), LIMITS, REPAIRS))


def test_reads_again_under_other_limits() -> None:
    narrow, wide = TextLimits(depth=2, nodes=3), TextLimits(depth=100, nodes=1000)
    many, few = b"[" + b"1," * 60 + b"1]", b"[[[1]]]"
    assert PlainReader.QUICK is known(few).found
    assert [[[1]]] == parse(known(few), wide)
    assert isinstance(parse(known(few), narrow), JsonProblem)
    assert isinstance(parse(known(many), LIMITS), JsonProblem)
    assert [1] * 61 == parse(known(many), wide)


def test_an_unreadable_message_is_still_answered_under_its_id() -> None:
    rows = b"[" + b"1," * 60 + b"1]"
    body = b'{"id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":' + rows + b"}}}"
    request = RawRequest("POST", "/mcp", "", Fields(), known(body), {}, "")
    seen = guess_message(request)
    assert seen is not None
    assert (7, "tools/call", "add") == (seen.id, seen.method, seen.param("name"))


def test_an_outline_holds_no_lists_and_no_long_texts() -> None:
    text = b'{"id":1,"list":[1,2],"long":"' + b"x" * 2000 + b'","deep":{"a":{"b":{"c":{"d":1}}}},"n":1.5}'
    assert b'{"id": 1, "list": null, "long": null, "deep": {"a": {"b": {"c": {}}}}, "n": null}' == outline(text)
    assert b"" == outline(b'{"id":')


# --- texts that their schema reads ------------------------------------------------------------------------------------
LIMITED: Final = st.fixed_dictionaries(
    {},
    optional={
        **{keyword: st.integers(-2, 3) for keyword in ("maximum", "exclusiveMaximum")},
        **{keyword: st.integers(0, 3) for keyword in ("minLength", "maxLength", "minItems", "maxItems")},
        "minimum": st.sampled_from([1, 2**53 + 1, 1.5]),
        "enum": st.lists(st.sampled_from(["", "a", "b", 1, None]), min_size=1, max_size=3, unique=True),
        "required": st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True),
        "additionalProperties": st.booleans(),
        "pattern": st.just("a"),
        "uniqueItems": st.booleans(),
    },
)
TYPES: Final = st.sampled_from(["integer", "number", "string", "boolean", "null", "array", "object"])
TYPED: Final = st.builds(
    lambda kinds, limits: {"type": kinds, **limits}, st.lists(TYPES, min_size=1, max_size=3, unique=True), LIMITED
)
SCHEMAS: Final = st.recursive(
    TYPED,
    lambda inner: st.builds(
        lambda made, items, members: {**made, "items": items, "properties": members},
        TYPED,
        inner | st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from("abc"), inner | st.booleans(), max_size=3),
    ),
    max_leaves=6,
)
NUMBERS: Final = st.sampled_from(
    ["0", "-0", "1", "1.0", "1.5", "1.50", "1e0", "2", "-1", "9007199254740992.0", "1" * 30]
)
MEMBERS: Final = st.recursive(
    NUMBERS | st.sampled_from(['""', '"a"', '"\\u0061"', '"b b"', '"\U0001f600"', '"\\ud800"', "true", "null", '"\t"']),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{' , '.join(items)}]")
        | st.lists(st.tuples(st.sampled_from("abcd"), inner), max_size=4).map(
            lambda members: "{" + ",".join(f'"{key}": {item}' for key, item in members) + "}"
        )
    ),
    max_leaves=8,
)
DIALECTS: Final = ["http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2020-12/schema"]


def is_read(check: Check, text: str, limits: TextLimits = DEFAULT_LIMITS) -> bool:
    """Returns whether the types of a check's schema read a text."""
    check.prepare(everywhere=False)
    return type(mark_valid(text.encode(), limits, check)) is KnownText


@given(SCHEMAS, MEMBERS, st.sampled_from(DIALECTS))
def test_a_schema_reads_no_text_that_it_rejects(schema: dict[str, Any], text: str, dialect: str) -> None:
    try:
        check = compile_check({"$schema": dialect, **schema})
    except SchemaError:
        return
    read = is_read(check, text)
    value = parse(text.encode())
    assert not read or (not isinstance(value, JsonProblem) and check.accepts(value))
    assert not read or [] == [*find_unknown_fields(check, value, Severity.ERROR)]


ROW: Final = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "v": {"type": ["number", "null"]}},
    "required": ["id"],
}


@pytest.mark.parametrize(
    ("row", "is_read_so"),
    [
        ('{"id":1}', True),
        ('{"id": 1, "name": "a b", "v": 1.5}', True),
        ('{"v":null,\n"id":1}', True),
        ('{"name":"a"}', False),
        ('{"id":"1"}', False),
        ('{"id":1.0}', False),
        ('{"id":-0}', False),
        ('{"id":1,"id":1}', False),
        ('{"id":1,"v":1.50}', False),
        ('{"id":1,"other":1}', False),
        ('{"id":1}}', False),
    ],
)
def test_a_plain_schema_reads_only_valid_texts(row: str, is_read_so: bool) -> None:
    check = compile_check({"type": "object", "properties": {"rows": {"type": "array", "items": ROW}}})
    text = f'{{"rows": [{row}]}}'
    assert is_read_so == is_read(check, text)
    assert not is_read(check, text, TextLimits(depth=2))
    assert not is_read(check, text, TextLimits(nodes=3))


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b"[", b"")])
def test_a_plain_schema_reads_no_text_that_is_too_deep(opening: bytes, closing: bytes) -> None:
    check = compile_check(ROW)
    check.prepare(everywhere=False)
    for depth in (100, 1_000, 100_000):
        text = b'{"id":1,"other":' + opening * depth + b"1" + closing * depth + b"}"
        assert mark_valid(text, DEFAULT_LIMITS, check) is text


def test_tries_a_schema_less_often_after_texts_that_it_does_not_read() -> None:
    check = compile_check(ROW)
    assert not any(is_read(check, '{"id":1,"other":1}') for _ in range(40))
    assert [True] == [read for _ in range(16) if (read := is_read(check, '{"id":1}'))][:1]
