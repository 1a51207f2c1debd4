"""Path and query parameters: read by their style, typed by their schema, judged."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.model.values import Violation
from proxy.extensions.operations.core.channels import judge_channels
from proxy.extensions.operations.core.http.parameters import read_parameter
from proxy.extensions.operations.core.http_operation import Channels, JudgedParameter

INTEGER = {"type": "integer", "minimum": 1, "maximum": 10}
NUMBERS = {"type": "array", "items": {"type": "integer"}, "maxItems": 3}
BOX = {"type": "object", "properties": {"w": {"type": "integer"}, "h": {"type": "integer"}}, "required": ["w"]}


def declared(place: str, schema: Any, name: str = "p", **more: Any) -> JudgedParameter:
    parameter = read_parameter([{"in": place, "name": name, "schema": schema, **more}], (0,))
    return JudgedParameter(parameter, compile_check(parameter.schema), name)


def told(found: tuple[Violation, ...]) -> list[tuple[str, str]]:
    return [(violation.severity.value, violation.message) for violation in found]


def in_query(query: str, schema: Any, **more: Any) -> list[tuple[str, str]]:
    strict = more.pop("strict", False)
    return told(judge_channels(Channels(query=(declared("query", schema, **more),), strict=strict), {}, query))


def in_path(text: str, schema: Any, **more: Any) -> list[tuple[str, str]]:
    return told(judge_channels(Channels(path=(declared("path", schema, **more),)), {"p": text}, ""))


@pytest.mark.parametrize(
    ("query", "schema", "how"),
    [
        ("", INTEGER, {}),
        ("p=3", INTEGER, {}),
        ("p=%33", INTEGER, {}),
        ("p=3", {"type": "string"}, {}),
        ("p=3", True, {}),
        ("p=1e2", {"type": "number"}, {}),
        ("p=true", {"type": "boolean"}, {}),
        ("p=true", {"type": "string"}, {}),
        ("p=null", {"type": ["integer", "null"]}, {}),
        ("p=a+b%26c", {"const": "a b&c"}, {}),
        ("p=1&p=2", NUMBERS, {}),
        ("p=1", NUMBERS, {}),
        ("p=1,2", NUMBERS, {"explode": False}),
        ("p=1%202", NUMBERS, {"style": "spaceDelimited", "explode": False}),
        ("p=1|2", NUMBERS, {"style": "pipeDelimited", "explode": False}),
        ("w=1&h=2", BOX, {}),
        ("p=w,1,h,2", BOX, {"explode": False}),
        ("p[w]=1&p%5Bh%5D=2", BOX, {"style": "deepObject"}),
        ("p=%7B%22w%22:1%7D", BOX, {"style": "json"}),
        ("p=x", {"anyOf": [{"type": "integer"}, {"enum": ["x"]}]}, {}),
    ],
)
def test_accepts_a_query_that_its_schema_accepts(query: str, schema: Any, how: Any) -> None:
    assert [] == in_query(query, schema, **how)


@pytest.mark.parametrize(
    ("query", "schema", "how", "message"),
    [
        ("p=11", INTEGER, {}, "Query parameter 'p': Value out of range: must be at most 10"),
        ("p=abc", INTEGER, {}, "Query parameter 'p': Type mismatch: expected integer, got string"),
        ("p=1e0", INTEGER, {}, "Query parameter 'p': Type mismatch: expected integer, got string"),
        ("p=", INTEGER, {}, "Query parameter 'p': Type mismatch: expected integer, got string"),
        ("p", INTEGER, {}, "Query parameter 'p': Type mismatch: expected integer, got string"),
        ("p=1&p=2", INTEGER, {}, "Query parameter 'p' cannot be read"),
        ("p=1&p=2&p=3&p=4", NUMBERS, {}, "Query parameter 'p': Array length 4 exceeds maximum 3"),
        ("p=1,x", NUMBERS, {"explode": False}, "Query parameter 'p': Type mismatch: expected integer, got string"),
        ("p[w]=1&p[w]=2", BOX, {"style": "deepObject"}, "Query parameter 'p' cannot be read"),
        ("p={", BOX, {"style": "json"}, "Query parameter 'p' cannot be read"),
        ("p=%zz", {"type": "string"}, {}, "The query string is not escaped text in UTF-8"),
        ("p=%ff", {"type": "string"}, {}, "The query string is not escaped text in UTF-8"),
        ("", INTEGER, {"required": True}, "Required query parameter 'p' is missing"),
        ("P=3", INTEGER, {}, "Query parameter 'P' is read as 'p' by some services, and as unknown by others"),
        ("p[]=99", INTEGER, {}, "Query parameter 'p[]' is read as 'p' by some services, and as unknown by others"),
        ("p=3&q=1", INTEGER, {"strict": True}, "Unknown query parameter 'q'"),
    ],
)
def test_rejects_a_query_that_its_schema_refuses(query: str, schema: Any, how: Any, message: str) -> None:
    assert ("error", message) == in_query(query, schema, **how)[0]


def test_reports_an_undeclared_name_as_a_warning() -> None:
    assert [("warning", "Unknown query parameter 'debug'")] == in_query("p=3&debug=1", INTEGER)


def test_names_of_credentials_count_as_declared() -> None:
    channels = Channels(query=(declared("query", INTEGER),), free=frozenset({"key"}), strict=True)
    assert () == judge_channels(channels, {}, "key=s3cret&p=3")


@pytest.mark.parametrize(
    ("text", "schema", "how"),
    [
        ("7", INTEGER, {}),
        ("1,2", NUMBERS, {}),
        (".1.2", NUMBERS, {"style": "label", "explode": True}),
        (";p=1;p=2", NUMBERS, {"style": "matrix", "explode": True}),
        (";p=1,2", NUMBERS, {"style": "matrix"}),
        ("w,1,h,2", BOX, {}),
        ("w=1,h=2", BOX, {"explode": True}),
    ],
)
def test_a_path_parameter_is_read_in_its_style(text: str, schema: Any, how: Any) -> None:
    assert [] == in_path(text, schema, **how)


@pytest.mark.parametrize("text", ["abc", "-1", "0", "11", "7.0", "0x7", "7;v=1", "٣"])
def test_a_path_parameter_that_the_schema_refuses_is_refused(text: str) -> None:
    assert "error" == in_path(text, INTEGER)[0][0]
