"""Members that a reader blind to case takes for the ones that were judged."""

from __future__ import annotations

import pytest

from proxy.core.json.jsontext import find_case_duplicate, parse
from proxy.core.model.values import JsonProblem, Pointer

LONG_S = "argument\u017f"  # Go's encoding/json folds it to `arguments`


@pytest.mark.parametrize(
    ("body", "path", "named"),
    [
        ('{"tool": "a", "Tool": "b"}', ("tool",), "tool"),
        ('{"TOOL": "b"}', ("tool",), "tool"),
        (f'{{"arguments": {{}}, "{LONG_S}": {{}}}}', ("arguments",), "arguments"),
        ('{"function": {"name": "a"}, "Function": {"name": "b"}}', ("function", "name"), "function"),
        ('{"function": {"name": "a", "NAME": "b"}}', ("function", "name"), "name"),
        ('{"toolName": "a", "toolname": "b"}', ("toolName",), "toolName"),
    ],
)
def test_names_a_second_member_that_differs_only_in_case(body: str, path: Pointer, named: str) -> None:
    found = find_case_duplicate(parse(body.encode()), path)

    assert JsonProblem(f"a member passes for '{named}' where case does not count: leave it out", 1, 1) == found


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ('{"tool": "a", "tools": "b", "_tool": 1}', ("tool",)),
        ('{"function": {"name": "a"}, "other": {"NAME": "b"}}', ("function", "name")),
        ('{"name": "a", "arguments": {"Name": 1}}', ("name",)),
        ('{"Name": "a"}', ()),
        ('[{"Name": "a"}]', ("name",)),
        ("7", ("name",)),
        ('{"name": 7}', ("name", "first")),
    ],
)
def test_everything_else_has_one_reading(body: str, path: Pointer) -> None:
    assert find_case_duplicate(parse(body.encode()), path) is None
