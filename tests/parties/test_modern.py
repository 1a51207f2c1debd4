"""Features that only revision 2026-07-28 has, between a real client and a real server that check each other. They are
headers that repeat values of the body, and calls that are made again with the user's answer."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import pytest

from tests.parties.conftest import Stage
from tests.parties.environment import CLIENTS, asked

pytestmark = pytest.mark.large

# The arguments of a model, and those that have to arrive.
SENT: Final[list[tuple[dict[str, Any], dict[str, Any]]]] = [
    ({"region": "north", "crates": 1}, {"region": "north", "crates": 1}),
    ({"region": "North", "crates": "2"}, {"region": "north", "crates": 2}),
    ({"region": "south", "crates": 3.0}, {"region": "south", "crates": 3}),
    ({"region": "NORTH"}, {"region": "north"}),
    ({"region": "south", "crates": " 4 "}, {"region": "south", "crates": 4}),
]


def test_headers_follow_a_repair_and_both_rounds_are_repaired_alike(stage: Stage) -> None:
    stage.back["low-clean"].exchanges()
    calls = [["ship", arguments] for arguments, _ in SENT]
    told = asked(CLIENTS["mcp2-modern"], {"low": stage.url("low")}, {"low": calls})["low"]
    assert [{"error": False, "text": json.dumps(arrives)} for _, arrives in SENT] == told["calls"]
    shipped = [each.request for each in stage.back["low-clean"].exchanges() if b'"ship"' in each.request.body]
    mirrored = Counter(tuple(field for field in each.fields if field[0].startswith("mcp-param-")) for each in shipped)
    expected = [tuple((f"mcp-param-{name}", str(value)) for name, value in sorted(each.items())) for _, each in SENT]
    assert dict.fromkeys(expected, 2) == mirrored
