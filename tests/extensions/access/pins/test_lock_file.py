"""The file of approved definitions, and the canonical JSON behind its digests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.contract.listed_tool import define_tool, hash_definition
from proxy.core.json.jsontext import are_equal, dumps, parse, write_canonical
from proxy.core.model.values import JsonProblem
from proxy.extensions.access.lock_file import (
    LockProblem,
    PinnedRoute,
    digest_tool,
    read_lock,
    select_definition,
    write_lock,
)
from tests.extensions.access.pins.test_serving_pinned import names
from tests.extensions.access.pins.test_serving_pinned import pinned as serve_pinned
from tests.extensions.mcp.conversation import feedback
from tests.extensions.mcp.server import ADD, NOW, call

NUMBERS = ["0", "-0", "0.0", "1", "1.0", "1e0", "10E-1", "0.1", "0.10", "1e-1", "123456789012345678901.5",
           "123456789012345678901.25", "1.5e300", "1e-300", "100000000000000000000000", "1e23"]  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.text(max_size=4) | st.sampled_from(NUMBERS).map(lambda text: parse(text.encode())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(left=values, right=values)
def test_equal_values_and_no_others_have_equal_bytes(left: Any, right: Any) -> None:
    assert are_equal(left, right) == (write_canonical(left) == write_canonical(right))


@pytest.mark.parametrize("left", NUMBERS)
def test_a_number_is_written_exactly(left: str) -> None:
    value = parse(left.encode())
    assert are_equal(value, parse(write_canonical(value)))
    assert [are_equal(value, parse(right.encode())) for right in NUMBERS] == [
        write_canonical(value) == write_canonical(parse(right.encode())) for right in NUMBERS
    ]


def test_orders_keys_as_rfc_8785_does() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    sample = dumps(dict.fromkeys(keys, 1))

    assert ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"] == list(
        json.loads(write_canonical(parse(sample)))
    )


def test_a_written_lock_file_is_read_and_written_alike_again() -> None:
    exact = parse(b'{"inputSchema":{"properties":{"a":{"maximum":12345678901234567890.25,"minimum":1e2}}}}')
    assert not isinstance(exact, JsonProblem)
    pins = {"/b": {"z": select_definition(ADD), "a": select_definition(exact)}, "/a": {}}

    assert are_equal(pins, read_lock(write_lock(pins).encode()))
    assert write_lock(pins) == write_lock(read_lock(write_lock(pins).encode()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "line 1"),
        (b"[]", "not a file that"),
        (b'{"version": 1}', "not a file that"),
        (b'{\n"version": 2, "routes": {}}', "line 2: version 1 is known here, and no other"),
        (b'{\n"routes": {}}', "line 1: version 1 is known here, and no other"),
        (
            b'{"version": 1, "routes":\n{"/mcp":\n{"add": {"digest": "sha256:0"}}}}',
            "line 3: tool 'add' of route '/mcp'",
        ),
        (b'{"version": 1, "routes": {"/mcp": {"add": 1}}}', "line 1: tool 'add' of route '/mcp'"),
        (b'{"version": 1, "routes": {"/mcp": ["add"]}}', "line 1: route '/mcp' holds no tools"),
        (b'{"version": 1, "routes":\n{"/mcp": {"add": {}},\n"/mcp": {}}}', "line 3: duplicate key"),
        (write_lock({"/mcp": {"add": ADD}}).encode()[:-20], "line [0-9]+: "),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: bytes, message: str) -> None:
    with pytest.raises(LockProblem, match=message):
        read_lock(text)


def test_the_name_is_part_of_the_digest() -> None:
    assert digest_tool("add", ADD) != digest_tool("sub", ADD)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"description": "Adds."}, 'changed /description: "Adds two numbers." is now "Adds."'),
        ({"title": "Add"}, "title added"),
        ({"annotations": {"readOnlyHint": True}}, "annotations added"),
        ({"icons": []}, "otherKeys added"),
        ({"inputSchema": {"type": "object"}}, "removed /inputSchema/properties: "),
    ],
)
def test_describes_a_change_part_by_part(change: dict[str, Any], told: str) -> None:
    entry = ADD | change
    pinned = PinnedRoute.of({"add": select_definition(ADD)}, "warn")
    found = pinned.describe_change("add", hash_definition(define_tool(entry)), entry)

    assert " ".join(found.split()).startswith(told)


@pytest.mark.parametrize("tail", ["", "!"])
async def test_a_list_so_large_that_a_child_process_reads_it_is_held_to_the_same(tmp_path: Path, tail: str) -> None:
    long = {**ADD, "description": "Adds. " + "x" * 100_000}
    async with serve_pinned(
        tmp_path, [{**long, "description": long["description"] + tail}, NOW], "hide", [long, NOW]
    ) as client:
        first = await client.ask(call("add", {"a": 1, "b": 2}))
        listed = await names(client)

    assert (["now"] if tail else ["add", "now"]) == listed
    assert bool(tail) == first["result"].get("isError", False)
    assert ("TOOL_NOT_APPROVED" if tail else None) == (feedback(first)["code"] if tail else None)
