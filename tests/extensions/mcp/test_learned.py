"""Tools that a server lists: what becomes of them under the operator's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.call.judging import is_ready
from proxy.core.check.validation import MAX_STRANGE_CHARACTERS, compile_check
from proxy.core.contract.listed_tool import MAX_NODES, BadSchemaError, compile_listed
from proxy.core.contract.policy import CallCap, ToolPolicy
from proxy.core.decide import prepare
from proxy.core.model.values import Container
from proxy.core.schema.patterns import MAX_LENGTH
from proxy.extensions.mcp.core.listed_tools import (
    MAX_POLICIES,
    LearnedTools,
    LearnPolicy,
    ListedTool,
    Listing,
    Overlay,
    Policies,
    make_unjudged_policy,
)
from proxy.extensions.mcp.core.served_tools import apply_merge_patch

INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TEMPLATE = ToolPolicy("", None, "template")
RULES = LearnPolicy(TEMPLATE)


def tools(*listed: ListedTool, rules: LearnPolicy = RULES) -> LearnedTools:
    return LearnedTools(Listing({tool.name: tool for tool in listed}, "digest", 1), rules)


def test_a_listed_tool_is_validated_by_its_schema_under_the_routes_policy() -> None:
    found = tools(ListedTool("count", "Counts.", INTEGER))["count"]

    assert found.check is not None
    assert (True, False) == (found.check.accepts({"n": 1}), found.check.accepts({"n": "1"}))
    assert ("count", "Counts.", 12) == (found.tool, found.description, len(found.schema_id))
    assert f"template/{found.schema_id}" == found.fingerprint


def test_arguments_are_an_object_even_if_the_schema_does_not_say_so() -> None:
    found = tools(ListedTool("bare", schema={}))["bare"]

    assert found.check is not None
    assert [True, False, False] == [found.check.accepts(value) for value in _ANY]


def test_reads_tuples_and_nullable_of_a_listed_schema() -> None:
    point = {"type": "array", "items": [{"type": "number"}, {"type": "number"}], "additionalItems": False}
    properties = {"point": point, "note": {"type": "string", "nullable": True}}
    found = tools(ListedTool("a", schema={"type": "object", "properties": properties}))["a"]
    assert found.check is not None
    assert [True, False, False] == [found.check.accepts({"point": each}) for each in ([1, 2], [1, "x"], [1, 2, 3])]
    assert [True, True, False] == [found.check.accepts({"note": each}) for each in ("a", None, 1)]


def test_explains_a_remote_reference_of_a_listed_schema() -> None:
    with pytest.raises(BadSchemaError) as caught:
        compile_listed({"type": "object", "properties": {"a": {"$ref": "https://example.org/s.json"}}}, True)
    assert "/properties/a/$ref: $ref 'https://example.org/s.json' leads to a document that is not there" in str(
        caught.value
    )
    assert "the server has to list the whole schema" in str(caught.value)
    assert "`documents`" not in str(caught.value)


def test_a_limit_in_draft_4s_spelling_keeps_its_meaning_without_a_named_draft() -> None:
    limit = {"minimum": 0, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False, "default": {"minimum": 1}}
    found = tools(ListedTool("a", schema={"properties": {"n": limit}}))["a"]
    named = {"n": {"x": 1}, "exclusiveMinimum": True}
    data = tools(ListedTool("a", schema={"properties": named, "enum": [{"exclusiveMinimum": True}]}))["a"]

    assert found.check is not None
    assert [False, True, True] == [found.check.accepts({"n": number}) for number in (0, 1, 9)]
    assert data.check is not None
    assert [True, False] == [data.check.accepts({"exclusiveMinimum": item}) for item in (True, "x")]


def test_a_policy_is_made_when_it_is_first_asked_for_and_once() -> None:
    learned = tools(ListedTool("count", schema=INTEGER), ListedTool("other", schema=INTEGER))

    assert (["count", "other"], 2, False) == (list(learned), len(learned), learned.is_made("count", is_ready))
    assert learned["count"] is learned["count"]
    assert learned.is_made("count", is_ready) is False  # its code is not written yet
    learned.prepare("count", prepare)
    assert (True, False, True) == (
        learned.is_made("count", is_ready),
        learned.is_made("other", is_ready),
        learned.is_made("nobody's", is_ready),
    )
    with pytest.raises(KeyError):
        learned["nobody's"]


_ANY: list[Any] = [{"any": 1}, None, []]
BAD: list[tuple[Any, str]] = [
    ({"type": "objekt"}, "/type: "),
    ({"$ref": "https://elsewhere.example/x"}, "/$ref: "),
    ({"$schema": "https://json-schema.org/draft/2099-01/schema"}, ""),
    ({"enum": list(range(MAX_NODES))}, f"it holds more than {MAX_NODES} values"),
    ([], "it is missing, or no JSON object"),
    (None, "it is missing, or no JSON object"),
]


@pytest.mark.parametrize(("schema", "reason"), BAD)
def test_a_tool_with_a_bad_schema_is_left_out_or_let_through_as_the_operator_says(schema: Any, reason: str) -> None:
    strict = tools(ListedTool("bad", schema=schema), ListedTool("good", schema=INTEGER))
    open_ = tools(ListedTool("bad", schema=schema), rules=replace(RULES, on_bad_schema="forward"))

    assert ("bad" in strict, "good" in strict) == (False, True)
    assert strict.bad["bad"].startswith(reason)
    assert open_["bad"].check is None
    assert open_.bad == strict.bad


def test_an_overlay_is_laid_over_the_listed_schema() -> None:
    patch = {"properties": {"n": {"maximum": 5}}, "required": None}
    rules = replace(RULES, overlays={"count": Overlay(replace(TEMPLATE, description="Ours."), patch)})
    found = tools(ListedTool("count", "Theirs.", INTEGER), rules=rules)["count"]

    assert found.check is not None
    assert [True, False, True] == [found.check.accepts(value) for value in ({"n": 5}, {"n": 6}, {})]
    assert "Ours." == found.description


def test_a_schema_a_container_and_no_validation_of_the_operator_override_the_listed_schema() -> None:
    own = compile_check({"required": ["z"]})
    rules = replace(
        RULES,
        overlays={
            "schema": Overlay(replace(TEMPLATE, check=own)),
            "container": Overlay(replace(TEMPLATE, container=Container("container"))),
            "off": Overlay(TEMPLATE, judged=False),
        },
    )
    learned = tools(*(ListedTool(name, schema=INTEGER) for name in rules.overlays), rules=rules)

    assert own is learned["schema"].check
    assert (None, "container") == (learned["container"].check, learned["container"].tool)
    assert learned["off"].check is None


def test_caps_and_trusted_hints_reach_the_policy() -> None:
    rules = replace(RULES, caps={"count": CallCap(2)}, trust_annotations=True)
    learned = tools(
        ListedTool("count", schema=INTEGER, hints={"idempotentHint": True}),
        ListedTool("b", schema=INTEGER),
        rules=rules,
    )

    assert (CallCap(2), True) == (learned["count"].cap, learned["count"].resend.idempotent)
    assert (CallCap(), False) == (learned["b"].cap, learned["b"].resend.idempotent)
    assert tools(ListedTool("c", schema=INTEGER, hints={"idempotentHint": True}))["c"].resend.idempotent is False


def test_a_container_in_place_of_all_tools_knows_them_all() -> None:
    rules = replace(RULES, collapse=Container("all", "mcp", expand="proxy", require_expansion=True))
    learned = tools(ListedTool("count", "Counts.", INTEGER), rules=rules)
    container = learned["all"].container

    assert container is not None
    assert [("count", "Counts.", INTEGER)] == [(one.name, one.description, one.schema) for one in container.functions]
    assert (["all", "count"], container) == (list(learned), learned["count"].member_of)


def test_lists_that_say_the_same_of_a_tool_share_its_policy_and_not_all_are_kept() -> None:
    policies = Policies()
    same, other = ListedTool("a", schema=INTEGER, digest="1"), ListedTool("a", schema={}, digest="2")
    made = [LearnedTools(Listing({"a": tool}, name, 1), RULES, policies)["a"] for name, tool in
            (("x", same), ("y", same), ("z", other))]  # fmt: skip
    for number in range(MAX_POLICIES):
        policies.keep((str(number), ""), TEMPLATE)

    assert made[0] is made[1]
    assert made[0] is not made[2]
    assert (MAX_POLICIES, False) == (len(policies.made), ("a", "1") in policies.made)


def test_compiles_usable_output_schemas() -> None:
    learned = tools(ListedTool("a", output=INTEGER), ListedTool("b", output={"type": 7}), ListedTool("c"))
    check = learned.output_check("a")

    assert check is not None
    assert (True, False) == (check.accepts({"n": 1}), check.accepts({}))
    assert [None, None, None] == [learned.output_check(name) for name in ("b", "c", "nobody's")]


def test_an_unvalidated_tool_keeps_what_the_operator_says_of_it() -> None:
    own = replace(TEMPLATE, tool="a", fingerprint="own")

    assert own is make_unjudged_policy("a", replace(RULES, overlays={"a": Overlay(own)}))
    assert replace(TEMPLATE, tool="b") == make_unjudged_policy("b", RULES)


# RFC 7396, appendix A.
PATCHES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "made"), PATCHES)
def test_a_patch_is_laid_over_as_rfc_7396_shows(target: Any, patch: Any, made: Any) -> None:
    assert made == apply_merge_patch(target, patch)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_laying_a_patch_over_twice_changes_no_more(target: Any, patch: Any) -> None:
    once = apply_merge_patch(target, patch)

    assert once == apply_merge_patch(once, patch)


def listed(schema: dict[str, Any]) -> LearnedTools:
    tools = {"bomb": ListedTool("bomb", schema=schema, digest="1"), "add": ListedTool("add", schema={}, digest="2")}
    return LearnedTools(Listing(tools, "d", 0), LearnPolicy(ToolPolicy("", None, "template")))


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (
            [r"^[\p{L}\p{M}0-9 .,'-]{1,NN}$|^x$".replace("NN", str(60 + number)) for number in range(100)],
            "instructions",
        ),
        (["(?=a)" + "b" * 1_900 + str(number) for number in range(20)], f"{MAX_STRANGE_CHARACTERS:,} characters"),
        (["a" * MAX_LENGTH], f"{MAX_STRANGE_CHARACTERS:,} characters"),
    ],
)
def test_patterns_of_a_listed_tool_are_bounded_together_and_cost_only_that_tool(patterns: list[str], said: str) -> None:
    tools = listed({"properties": {f"p{number}": {"pattern": pattern} for number, pattern in enumerate(patterns)}})
    assert (None, True) == (tools.get("bomb"), "add" in tools and tools.get("add") is not None)
    assert said in tools.bad["bomb"]
