"""Each operation's merged schema takes its own example, which goes into an HTTP request and comes out as the same."""

from __future__ import annotations

import pytest

from proxy.adapters.base import CallShape
from proxy.core.check.validation import Check, compile_check
from proxy.core.json.jsontext import are_equal
from proxy.core.model.values import ABSENT, Fields, JsonValue, RawRequest
from proxy.core.schema.dialects import normalise
from proxy.extensions.operations.adapters.http_operation import read_request
from proxy.extensions.operations.adapters.http_request import BoundOperation, bind_operation, write_request
from proxy.extensions.operations.core.channels import find_unwritable
from proxy.extensions.operations.core.openapi import import_operation, list_operations
from proxy.extensions.second_judge.core.examples import make_full_example, make_minimal_example
from proxy.routing import Match, Route, RouteTable
from tests.extensions.operations.served import TRIPS
from tests.extensions.operations.shop import BOOKSHOP

OPERATIONS = [
    (document, f"{each.method} {each.path}")
    for document in (TRIPS, BOOKSHOP)
    for each in list_operations(document)
    if "/notes" not in each.path or each.method == "GET"
]


def bound(document: JsonValue, name: str) -> tuple[BoundOperation, Check]:
    """An operation as a route has it."""
    made = import_operation(document, name)
    check = compile_check(normalise(made.schema)[0])
    return bind_operation(made.request, check, by_name=True), check


def came_back(operation: BoundOperation, value: JsonValue) -> JsonValue:
    """Arguments written into a request and read out of it, as they come from a client."""
    written = write_request(operation, value)
    template = operation.template
    route = Route("x", template.path, frozenset({template.method}), "call", upstream_path=template.path)
    match = RouteTable((route,)).match(template.method, written.fill_path(template.path))
    assert isinstance(match, Match), match
    headers = [*written.headers, ("content-type", written.media_type)]
    request = RawRequest(
        template.method, template.path, written.query, Fields(headers), written.body, match.params, "127.0.0.1"
    )
    read = read_request(request, operation, CallShape(operation=operation))
    assert [] == read.violations
    return {**read.value}


@pytest.mark.parametrize(("document", "name"), OPERATIONS, ids=[name for _, name in OPERATIONS])
def test_an_example_goes_through_http_and_comes_back(document: JsonValue, name: str) -> None:
    operation, check = bound(document, name)
    for value in (make_minimal_example(check), make_full_example(check, 20)):
        if value is ABSENT:
            continue
        assert check.accepts(value)
        if isinstance(value, dict) and "photo" in value:
            value["photo"] = ""
        assert () == find_unwritable(operation, value)
        assert are_equal(value, came_back(operation, value))
