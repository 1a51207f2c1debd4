"""A text that was read before gives the result of a first reading, in every way in which it can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.call.jobs import read_known_text, read_text, write_text_job
from proxy.core.json import fast_json
from proxy.core.json.jsontext import TextLimits, dumps, parse, read_document
from proxy.core.json.strictreader import KnownText, PlainReader, outline
from proxy.core.model.values import Document, Fields, JsonProblem, RawRequest
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
    monkeypatch.setattr(fast_json, "ON", quick)
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
