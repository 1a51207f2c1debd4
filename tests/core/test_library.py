"""The public API of the engine (docs/library.md): it decides as a route does, and loads nothing of the server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import proxy.core
from proxy.cli.dryrun import DryRun, ForwardedCall
from proxy.config.load import load
from proxy.core import (
    AcceptedCall,
    AppliedRepair,
    CallPolicy,
    CompiledTool,
    RejectedCall,
    SchemaError,
    compile_tool,
)
from proxy.core.envelope.feedback import write_feedback
from proxy.core.model.fields import Fields
from proxy.core.model.values import RawRequest
from proxy.routing import build_routes
from tests.corpora.calls import rows
from tests.generated import sample

ROOT: Final = Path(__file__).parents[2]
DATA: Final = ROOT / "tests" / "data"
TABLE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"guests": {"type": "integer", "minimum": 1}, "name": {"type": "string"}},
    "required": ["guests", "name"],
}


def book(arguments: Any, policy: CallPolicy | None = None, schema: dict[str, Any] = TABLE) -> Any:
    """The decision on a call of `book_table`."""
    return compile_tool("book_table", schema, policy or CallPolicy()).decide(arguments)


# --- what it loads ----------------------------------------------------------------------------------------------------
def test_decides_in_a_fresh_interpreter_without_aiohttp() -> None:
    program = """
import sys
from proxy.core import compile_tool
tool = compile_tool("t", {"properties": {"n": {"type": "integer"}}})
print(tool.decide('{"n": "4"}').arguments, tool.decide('{"n": "x"}').code)
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded & {"aiohttp", "asyncio", "httptools", "logging", "redis", "structlog", "yaml"}))
print(sorted(name for name in sys.modules if name.startswith("proxy.") and not name.startswith("proxy.core")))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert """b'{"n":4}' INVALID_ARGUMENTS\n[]\n[]\n""" == done.stdout


def test_loads_no_module_of_the_core_before_a_name_is_used() -> None:
    program = "import sys, proxy.core\nprint([name for name in sys.modules if name.startswith('proxy.core.')])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout


def test_exports_the_names_that_the_page_lists() -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    listed = [line.split("`")[1].partition("(")[0] for line in page.splitlines() if line.startswith("| `")]
    assert set(proxy.core.__all__) == {name for name in listed if "." not in name and hasattr(proxy.core, name)}
    with pytest.raises(AttributeError, match="has no attribute 'no_name'"):
        getattr(proxy.core, "no_name")  # noqa: B009 - mypy knows that it is not there


# --- what it decides --------------------------------------------------------------------------------------------------
def test_accepts_a_valid_call_byte_for_byte() -> None:
    text = b'{ "name": "A\\u006e",  "guests": 4 }'
    accepted = book(text)
    assert AcceptedCall(text) == accepted
    assert {"name": "An", "guests": 4} == accepted.value


def test_names_each_repair_and_its_place() -> None:
    accepted = book('{"guests": "4", "name": "Ann"}')
    assert AcceptedCall(b'{"guests":4,"name":"Ann"}', (AppliedRepair("string_to_integer", "/guests"),)) == accepted


def test_rejects_with_a_text_and_every_error() -> None:
    rejected = book('{"guests": 0}')
    assert isinstance(rejected, RejectedCall)
    assert "INVALID_ARGUMENTS" == rejected.code
    assert ["/guests", "/name"] == [error.path for error in rejected.errors]
    assert ("VAL-003", "0", "error") == (
        rejected.errors[0].code, rejected.errors[0].actual, rejected.errors[0].severity
    )  # fmt: skip
    assert "Required field 'name' is missing" in rejected.text


def test_masks_secrets_in_the_text_and_in_the_errors() -> None:
    schema = {"properties": {"pin": {"type": "string", "maxLength": 3, "writeOnly": True}}}
    rejected = book({"pin": "hunter2"}, schema=schema)
    assert "hunter2" not in rejected.text + str(rejected.errors) + str(rejected.errors[0].actual)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"guests": 1, "guests": 2}', "duplicate key"),
        ('{"guests": NaN}', "expected value"),
        ({"guests": float("nan")}, "expected value"),
        ({"name": "\ud800"}, "invalid unicode"),
        (b"\xff", "Invalid JSON"),
    ],
)
def test_rejects_what_is_not_strict_json(arguments: Any, reason: str) -> None:
    rejected = book(arguments)
    assert ["VAL-004"] == [error.code for error in rejected.errors]
    assert reason in rejected.text


@pytest.mark.parametrize("arguments", [{1, 2}, {"n": {1}}, object()])
def test_raises_for_a_value_that_is_not_json(arguments: Any) -> None:
    with pytest.raises(TypeError):
        book(arguments)


def test_reads_no_text_as_an_empty_object() -> None:
    assert AcceptedCall(b"{}", (AppliedRepair("empty_arguments", ""),)) == book("", schema={"type": "object"})


def test_rejects_arguments_over_a_bound() -> None:
    assert "BODY_TOO_LARGE" == book({"name": "x" * 100}, CallPolicy(max_bytes=100)).code
    assert "VAL-004" == book('{"name": [[[1]]]}', CallPolicy(depth=3)).errors[0].code


def test_shows_at_most_as_many_errors_as_the_policy_says() -> None:
    rejected = book({}, CallPolicy(max_errors=1))
    assert 1 == len(rejected.errors)
    assert "(+1 more)" in rejected.text


def test_warns_of_unknown_keys_if_the_policy_says_so() -> None:
    accepted = book('{"guests":1,"name":"Ann","colour":"red"}', CallPolicy(unknown_keys="warn"))
    assert [("/colour", "warning")] == [(each.path, each.severity) for each in accepted.warnings]


@pytest.mark.parametrize(
    ("effect", "null_optional", "is_accepted"),
    [("reads", "stated", True), ("changes", "stated", False), ("changes", "drop", True), ("reads", "refuse", False)],
)
def test_leaves_a_null_out_on_the_word_of_the_policy(effect: Any, null_optional: Any, is_accepted: bool) -> None:
    schema = {"properties": {"note": {"type": "string"}}}
    decision = book('{"note":null}', CallPolicy(effect=effect, null_optional=null_optional), schema)
    assert is_accepted == isinstance(decision, AcceptedCall)


def test_follows_switches_of_rules_and_aliases() -> None:
    assert isinstance(book('{"guests":"4","name":"a"}', CallPolicy(rules={"string_to_integer": False})), RejectedCall)
    assert isinstance(book('{"guests":"4","name":"a"}', CallPolicy("off")), RejectedCall)
    renamed = book('{"people":4,"name":"a"}', CallPolicy(aliases={"people": "guests"}))
    assert {"guests": 4, "name": "a"} == renamed.value


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["guests", "name", "x"]), inner),
    max_leaves=8,
)
LENIENT: Final = compile_tool("book_table", TABLE, CallPolicy("lenient"))


@given(st.binary() | st.text() | JSON.filter(lambda value: isinstance(value, dict)))
def test_never_raises_and_accepts_again_what_it_would_send(arguments: Any) -> None:
    decision = LENIENT.decide(arguments)
    if isinstance(decision, AcceptedCall):
        assert AcceptedCall(decision.arguments) == LENIENT.decide(decision.arguments)
        assert isinstance(decision.value["guests"], int)
    else:
        assert decision.text


# --- schemas and policies that cannot be used -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        ({"type": "strin"}, ("type",), "strin"),
        ({"properties": {"a": {"$ref": "#/$defs/no"}}}, ("properties", "a"), "no"),
        ({"$ref": "https://example.com/x"}, (), "example.com"),
        ({"properties": {"a": {"x-repair": ["no_rule"]}}}, ("properties", "a", "x-repair"), "no_rule"),
        ({"properties": {"a": {"type": "string", "minimum": 1, "x-null": "maybe"}}},
         ("properties", "a", "x-null"), "maybe"),
        ({"properties": {"a": {"type": "string", "minLenght": 1}}}, None, "minLenght"),
        ({"properties": {"a": {"minimum": 2, "maximum": 1, "type": "integer"}}}, ("properties", "a"), ""),
        ({"enum": {1}}, (), "not JSON"),
        ({"const": float("inf")}, (), "not JSON"),
        ([], (), "not an object"),
    ],
)  # fmt: skip
def test_rejects_a_schema_that_cannot_be_used(schema: Any, path: tuple[str, ...] | None, message: str) -> None:
    with pytest.raises(SchemaError) as raised:
        compile_tool("t", schema)
    assert message in raised.value.message
    assert path is None or path == raised.value.path[: len(path)]


def test_bounds_a_schema_from_outside() -> None:
    large = {"properties": {f"p{number}": {"type": "string"} for number in range(3000)}}
    compile_tool("t", large)
    with pytest.raises(SchemaError, match="5000 values"):
        compile_tool("t", large, is_trusted=False)


def test_takes_the_schema_out_of_a_tool_definition() -> None:
    definition = {"type": "function", "function": {"name": "book_table", "parameters": TABLE}}
    assert isinstance(book('{"guests":"many"}', schema=definition), RejectedCall)


def test_keeps_the_schema_as_it_was_compiled() -> None:
    schema = json.loads(json.dumps(TABLE))
    tool = compile_tool("t", schema)
    schema["required"] = []
    assert isinstance(tool.decide('{"guests":1}'), RejectedCall)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (CallPolicy(repair="strict"), "unknown repair 'strict': use one of off, basic, standard, lenient"),
        (CallPolicy(rules={"no_rule": True}), "unknown repair rule 'no_rule'"),
        (CallPolicy(effect="writes"), "unknown effect 'writes': use one of reads, adds, changes"),  # type: ignore[arg-type]
        (CallPolicy(unknown_keys="drop"), "unknown unknown_keys 'drop': use one of schema, warn"),  # type: ignore[arg-type]
    ],
)
def test_rejects_a_policy_that_names_something_unknown(policy: CallPolicy, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_tool("t", TABLE, policy)


# --- beside a route ---------------------------------------------------------------------------------------------------
CASES: Final = [
    case
    for name in ("one-meaning/cases.jsonl", "one-meaning/further.jsonl", "two-meanings/cases.jsonl")
    for case in rows(DATA / name)
]


def test_decides_each_recorded_call_as_a_route_does(tmp_path: Path) -> None:
    cases = sample(CASES)
    routes = [
        {"path": f"/{number}", "upstream": "a", "tool": case["tool"], "schema": case["schema"]}
        for number, case in enumerate(cases)
    ]
    upstreams = {"a": {"url": "http://127.0.0.1:9"}}
    config = {"version": 1, "upstreams": upstreams, "schemas": {"unknown_keywords": "off"}, "routes": routes}
    (tmp_path / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    built = build_routes(load(tmp_path / "config.yaml", {}).config).routes
    assert len(cases) == len(built)
    with DryRun() as dry:
        for case, route in zip(cases, built, strict=True):
            body = case["sent"].encode()
            request = RawRequest("POST", route.path, "", Fields(()), body, {}, "")
            expected = dry.judge(request, route.adapter, route.shape, route.tools)
            decision = compile_tool(case["tool"], case["schema"]).decide(body)
            if isinstance(expected, ForwardedCall):
                assert isinstance(decision, AcceptedCall), case["id"]
                assert expected.arguments == decision.arguments, case["id"]
                assert [made.rule for made in expected.repairs] == [made.rule for made in decision.repairs]
            else:
                assert isinstance(decision, RejectedCall), case["id"]
                assert write_feedback(expected).replace(" (attempt 1/3)", "") == decision.text, case["id"]


def test_a_compiled_tool_shows_its_name_only() -> None:
    tool = compile_tool("book_table", TABLE)
    tool.prepare()
    assert ("book_table", "CompiledTool('book_table')") == (tool.name, repr(tool))
    assert isinstance(tool, CompiledTool)
