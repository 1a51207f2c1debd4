"""A text says "Did you mean" only for a likely slip of the hand."""

from __future__ import annotations

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract.container import make_misuse_failure
from proxy.core.display.suggestions import find_nearest, is_same_name, make_unknown_tool_failure
from proxy.core.explain.explain import list_violations
from proxy.core.model.values import Container, ContainerFunction, JsonValue

SLIPS = [
    ("uft8", "utf-8"), ("get_wether", "get_weather"), ("getWeather", "get_weather"), ("Celcius", "celsius"),
    ("Celsius", "celsius"), ("apend", "append"), ("colour", "color"), ("option_1", "option_01"), ("ids", "id"),
    ("waehrung", "währung"), ("HTTPServer", "http_server"),
]  # fmt: skip
OTHERS = [
    ("re_lease", "release"), ("re-cover", "recover"), ("un_disabled", "disabled"), ("un-disabled", "disabled"),
    ("undisabled", "disabled"), ("in active", "inactive"), ("in_active", "inactive"), ("MW", "mw"), ("AA", "Aa"),
    ("Am7", "AM7"), ("tool_200", "tool_2000"), ("tool_20", "tool_200"), ("v1", "v2"), ("weather", "get_weather"),
    ("delete_user", "delete_users_all"), ("exclude_tags", "tags"),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "known"), SLIPS)
def test_suggests_what_a_slip_explains(sent: str, known: str) -> None:
    assert known == find_nearest(sent, ["something", known], slip=True)
    assert f"Did you mean '{known}'" in make_unknown_tool_failure(sent, ["something", known]).hint


@pytest.mark.parametrize(("sent", "known"), OTHERS)
def test_suggests_nothing_across_a_part_a_number_or_a_case_that_carries_meaning(sent: str, known: str) -> None:
    closed: JsonValue = {"type": "object", "properties": {known: {"type": "integer"}}, "additionalProperties": False}
    listed: JsonValue = {"type": "object", "properties": {"mode": {"enum": [known, "something"]}}}
    functions = Container("Box", functions=(ContainerFunction(known),))
    hints = [
        make_unknown_tool_failure(sent, [known]).hint,
        make_misuse_failure(functions, {"function": sent}).hint,
        *(each.hint for each in list_violations(compile_check(closed), {sent: 1}, ())),
        *(each.hint for each in list_violations(compile_check(listed), {"mode": sent}, ())),
    ]
    assert [] == [hint for hint in hints if "Did you mean" in hint or "You probably want" in hint]


@pytest.mark.parametrize(
    ("sent", "known"),
    [("re_lease", "release"), ("in_active", "inactive"), ("item_1_1", "item_11"), ("filepath", "file_path")],
)
def test_orders_no_rename_across_a_part(sent: str, known: str) -> None:
    needed: JsonValue = {"type": "object", "properties": {known: {"type": "integer"}}, "required": [known]}
    assert not is_same_name(sent, known)
    (missing,) = [each for each in list_violations(compile_check(needed), {sent: 1}, ()) if each.path == (known,)]
    assert "You sent" not in missing.hint or " if " in missing.hint
