"""Complaints of upstreams: those about the arguments become violations with a path, others do not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.check.validation import Check, compile_check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.explain.advice import add_advice
from proxy.core.explain.places import find_value
from proxy.core.explain.signature import write_signature
from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model import codes
from proxy.core.model.values import (
    ABSENT,
    Conversation,
    Document,
    Failure,
    FeedbackLimits,
    JsonValue,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)
from proxy.core.rules.facts import list_required
from proxy.core.tool_errors.complaints import RULE_PATTERNS, STATUSES, TYPE_PATTERNS, Complaint, read_complaints
from proxy.core.tool_errors.dialects import DIALECTS
from proxy.core.tool_errors.error_body import find_json_type
from proxy.core.tool_errors.places import read_steps
from tests.core.values import SECRETS
from tests.generated import examples
from tests.tables import each_row

DATA: Final = Path(__file__).parent.parent / "data" / "upstream-complaints"
GUARDS: Final = "not-complaints.json"
# The dialects after the table, which read a complaint that no other dialect reads.
LAST_RESORTS: Final = {"gomind", "json-rpc"}


def rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return found


FILES: Final = sorted(path.name for path in DATA.glob("*.json") if path.name != GUARDS)
SAMPLES: Final = [(name, index, row) for name in FILES for index, row in enumerate(rows(name))]
WEATHER: Final[JsonValue] = parse((DATA / "collect" / "schema.json").read_bytes())
CHECK: Final = compile_check(WEATHER)


def value(python: object) -> JsonValue:
    """A value as the proxy reads it from JSON."""
    return parse(json.dumps(python).encode())


def check_of(row: dict[str, Any]) -> Check:
    if isinstance(row["schema"], str):
        assert "collect/schema.json" == row["schema"]
        return CHECK
    return compile_check(value(row["schema"]))


def asked(row: dict[str, Any], status: int | None = None) -> Complaint | None:
    body = row["body"].encode()
    return read_complaints(status or row["status"], row["content_type"], body, check_of(row), value(row["sent"]))


def told(text: str, sent: object, schema: object = None, *, limits: FeedbackLimits | None = None) -> Complaint | None:
    """Returns what a plain text of status 400 says about arguments."""
    check = compile_check(value(schema)) if schema is not None else None
    return read_complaints(400, "text/plain", text.encode(), check, value(sent), limits)


def found(complaint: Complaint | None) -> list[tuple[str, str]]:
    assert complaint is not None
    return [(violation.code.name, format_pointer(violation.path)) for violation in complaint.violations]


# --- samples ----------------------------------------------------------------------------------------------------------
@each_row("row", [row for *_, row in SAMPLES], ids=[f"{name}-{index}" for name, index, _ in SAMPLES])
def test_a_complaint_becomes_violations_with_paths(row: dict[str, Any]) -> None:
    complaint = asked(row)
    if not row["dialect"]:  # the model gets the tool's own words
        assert ([], None) == (row["expect"], complaint)
        return
    assert sorted((one["code"], one["path"]) for one in row["expect"]) == sorted(found(complaint))
    assert complaint is not None
    assert row["dialect"] == complaint.dialect
    by_path = {format_pointer(violation.path): violation for violation in complaint.violations}
    for one in row["expect"]:
        assert one.get("expected", by_path[one["path"]].expected) == by_path[one["path"]].expected


def test_every_dialect_has_samples_that_it_reads() -> None:
    assert {dialect.name for dialect in DIALECTS} | LAST_RESORTS == {row["dialect"] for *_, row in SAMPLES} - {""}


def test_no_sample_file_is_empty() -> None:
    assert set(FILES) == {name for name, *_ in SAMPLES}


def test_every_sample_names_its_source() -> None:
    unsaid = [
        (name, index)
        for name, index, row in SAMPLES
        if not (row["versions"] if row["how"] == "ran" else row["how"] == "documented" and row["source"])
    ]
    assert [] == unsaid


# --- what is not a complaint about arguments ----------------------------------------------------------------------
@each_row("row", rows(GUARDS), ids=[row["what"] for row in rows(GUARDS)])
def test_ignores_other_errors(row: dict[str, Any]) -> None:
    sent = value({"lat": 1, "lon": 2, "city": "Paris"})
    for check in (CHECK, None):
        assert read_complaints(row["status"], row["content_type"], row["body"].encode(), check, sent) is None


def test_at_least_thirty_errors_are_ignored() -> None:
    assert len(rows(GUARDS)) >= 30


@pytest.mark.parametrize("status", [200, 302, 401, 403, 405, 408, 410, 413, 415, 429, 500, 502, 503])
def test_other_statuses_say_themselves_who_is_at_fault(status: int) -> None:
    assert {400, 404, 409, 422} == STATUSES
    assert asked(rows("go-json.json")[0], status) is None


@pytest.mark.parametrize("status", [400, 404, 409, 422])
def test_a_type_error_is_read_with_each_status_that_can_mean_it(status: int) -> None:
    text = b"json: cannot unmarshal string into Go struct field WeatherRequest.lat of type float64"
    complaint = read_complaints(status, "text/plain", text, CHECK, value({"lat": "abc"}))
    assert [("VAL-002", "/lat")] == found(complaint)


def test_not_found_is_no_complaint_about_the_field_that_was_looked_up() -> None:
    body = b'{"errors": {"city": ["is not known"]}}'
    sent = value({"lat": 1, "city": "Pari"})
    assert read_complaints(404, "application/json", body, CHECK, sent) is None
    assert [("VAL-003", "/city")] == found(read_complaints(422, "application/json", body, CHECK, sent))


# --- GoMind -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pattern", TYPE_PATTERNS + RULE_PATTERNS)
def test_a_pattern_of_the_seed_without_a_path_still_counts(pattern: str) -> None:
    complaint = told(f"Bad input: it {pattern.upper()} x", {"lat": 1})
    assert complaint is not None
    assert ("gomind", (), pattern in TYPE_PATTERNS) == (
        complaint.dialect, complaint.violations, complaint.type_related,
    )  # fmt: skip


def test_a_business_rule_of_the_seed_is_a_validation_error() -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "number"}}}
    complaint = told("Amount must be greater than 0", {"amount": -5}, schema)
    assert complaint == Complaint(
        "sentence",
        (
            Violation(
                codes.CONSTRAINT,
                ("amount",),
                "The tool refuses this value",
                "number",
                "The tool says: Amount must be greater than 0",
                value=-5,
            ),
        ),
        "Amount must be greater than 0",
        False,
    )


def test_reads_a_type_error_of_go_in_full() -> None:
    complaint = told(
        "json: cannot unmarshal string into Go struct field WeatherRequest.lat of type float64",
        {"lat": "35.6897"},
        {"type": "object", "properties": {"lat": {"minimum": -90, "maximum": 90}}},
    )
    words = "cannot unmarshal string into Go struct field WeatherRequest.lat of type float64"
    violation = Violation(
        codes.TYPE_MISMATCH,
        ("lat",),
        "Type mismatch: expected number, got string",
        "number",
        f"The tool says: {words}",
        value="35.6897",
    )
    assert complaint == Complaint("go-json", (violation,), words, True)


def test_the_schema_says_more_of_the_same_type_than_the_tool() -> None:
    complaint = told(
        "json: cannot unmarshal string into Go struct field W.lat of type float64",
        {"lat": "x"},
        {"type": "object", "properties": {"lat": {"type": "number", "minimum": -90}}},
    )
    assert complaint is not None
    assert ["number (at least -90)"] == [violation.expected for violation in complaint.violations]


def test_a_type_that_only_the_tool_knows_is_not_contradicted_by_the_schema() -> None:
    schema = {"type": "object", "properties": {"when": {"type": "string"}}}
    complaint = told("when has the wrong type", {"when": "noon"}, schema)
    assert complaint is not None
    shown_type = [(violation.message, violation.expected) for violation in complaint.violations]
    assert [("Type mismatch: expected another type, got string", "")] == shown_type


# --- places -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("steps", "written"),
    [
        (("lat",), "lat"),
        (("lat",), "/lat"),
        (("lat",), "#/lat"),
        (("lat",), "$.lat"),
        (("lat",), ".lat"),
        (("lat",), "$['lat']"),
        (("body", "place", "lat"), "body.place.lat"),
        (("stops", "1", "lat"), "stops[1].lat"),
        (("stops", "1", "lat"), "stops.1.lat"),
        (("stops", "1", "lat"), "/stops/1/lat"),
        (("place", "lat"), "place -> lat"),
        (("a/b", "m~n"), "/a~1b/m~0n"),
        (("a.b",), '["a.b"]'),
        ((), ""),
        ((), "$"),
    ],
)
def test_a_place_is_cut_into_steps_however_it_is_written(steps: tuple[str, ...], written: str) -> None:
    assert steps == read_steps(written)


@pytest.mark.parametrize(
    "written",
    [
        "lat",
        "Lat",
        "LAT",
        "body.lat",
        "$.lat",
        "/lat",
        "input.lat",
        "WeatherRequest.Lat",
        "arguments/lat",
        "data.body.lat",
    ],
)
def test_an_argument_is_found_under_every_spelling_of_its_place(written: str) -> None:
    body = dumps({"errors": [{"field": written, "message": "must be a number"}]})
    for check in (CHECK, None):
        complaint = read_complaints(400, "application/json", body, check, value({"lat": "abc"}))
        assert [("VAL-002", "/lat")] == found(complaint)


def test_the_spelling_of_the_schema_wins_over_the_framework_s() -> None:
    schema = {"type": "object", "properties": {"airQuality": {"type": "object", "properties": {"maxAge": {}}}}}
    text = "Key: 'Request.AirQuality.MaxAge' Error:Field validation for 'MaxAge' failed on the 'required' tag"
    complaint = told(text, {"airQuality": {}}, schema)
    assert [("VAL-001", "/airQuality/maxAge")] == found(complaint)


def test_an_argument_called_like_a_prefix_is_that_argument() -> None:
    schema = {"type": "object", "properties": {"body": {"type": "string"}}}
    body = b'{"errors": [{"field": "body", "message": "must be a string"}]}'
    complaint = read_complaints(400, "application/json", body, compile_check(value(schema)), value({"body": 1}))
    assert [("VAL-002", "/body")] == found(complaint)


def test_a_value_that_could_be_one_of_several_gets_no_path() -> None:
    complaint = told('invalid type: string "abc", expected f64 at line 1 column 9', {"a": "abc", "b": "abc"})
    assert complaint is not None
    assert ((), True) == (complaint.violations, bool(complaint.words))


def test_a_field_that_only_the_tool_knows_is_named_as_the_tool_names_it() -> None:
    body = b'{"detail": [{"type": "missing", "loc": ["body", "country"], "msg": "Field required", "input": {}}]}'
    complaint = read_complaints(422, "application/json", body, CHECK, value({"lat": 1}))
    assert [("VAL-001", "/country")] == found(complaint)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("number", "float64"), ("number", "java.lang.Double"), ("number", "System.Double"), ("integer", "*int32"),
        ("integer", "u8"), ("string", "a string"), ("boolean", "bool"), ("array", "[]string"), ("array", "a sequence"),
        ("array", "List<String>"), ("object", "map[string]float64"), ("object", "struct { Lat float64 }"),
        ("null", "NoneType"), ("", "main.WeatherRequest"), ("", ""),
    ],
)  # fmt: skip
def test_a_type_s_name_is_understood_in_every_language(kind: str, written: str) -> None:
    assert kind == find_json_type(written)


# --- never too much ---------------------------------------------------------------------------------------------------
def shown(complaint: Complaint | None) -> str:
    """Everything of a complaint that a model may see."""
    if complaint is None:
        return ""
    parts = [complaint.words]
    for violation in complaint.violations:
        parts += [violation.message, violation.expected, violation.hint, format_pointer(violation.path)]
    return "\n".join(parts)


TEMPLATES: Final = [
    'json: unknown field "{}"',
    'invalid type: string "{}", expected f64',
    'Cannot deserialize value of type `java.lang.Double` from String "{}": not a valid `Double` value',
    '{{"errors": {{"lat": ["{} is not a number"]}}}}',
    '{{"detail": [{{"loc": ["body", "lat"], "msg": "bad {}", "type": "float_type"}}]}}',
    '{{"detail": [{{"loc": ["body", "{}"], "msg": "Field required", "type": "missing"}}]}}',
    "lat is required, got {}",
    "type mismatch near {}",
    "1 validation error for X\nlat\n  Input {} bad [type=float_type, input_value='{}']",
]


@each_row("template", TEMPLATES)
@each_row("secret", SECRETS)
def test_a_credential_in_a_tool_s_words_is_never_shown(template: str, secret: str) -> None:
    assert secret not in shown(told(template.format(secret, secret), {"lat": "x", "note": secret}, WEATHER))


@each_row("template", TEMPLATES)
@each_row("secret", ["hunter2", "correct horse battery staple", "pin 7", "Zürich-9"])
def test_a_secret_argument_that_the_tool_repeats_is_never_shown(template: str, secret: str) -> None:
    text = template.format(secret, secret)
    assert secret not in shown(told(text, {"lat": "x", "password": secret, "deep": [{"apiKey": secret}]}, WEATHER))


def test_a_secret_that_the_schema_marks_is_never_shown() -> None:
    schema = {"type": "object", "properties": {"lat": {}, "mother": {"type": "string", "x-sensitive": True}}}
    sent = {"lat": "x", "mother": "Rosalind"}
    text = 'json: unknown field "lat"; type mismatch: Rosalind'
    assert "Rosalind" not in shown(told(text, sent, schema))
    assert "Rosalind" not in shown(told(text, sent, limits=FeedbackLimits(secret_names=frozenset({"mother"}))))


def test_words_are_left_out_if_there_are_more_secrets_than_can_be_looked_for() -> None:
    sent = {"lat": "x", "tokens": [f"secret{index}" for index in range(300)]}
    complaint = told("lat is required, got secret299", sent, WEATHER)
    assert complaint is not None
    assert "" == complaint.words
    assert "secret" not in shown(complaint)


def test_shows_one_bounded_line() -> None:
    text = "json: cannot unmarshal string into Go struct field W.lat of type " + "x" * 10_000 + "\n\n\x1b[31m"
    complaint = told(text, {"lat": "x"}, WEATHER)
    assert complaint is not None
    assert len(complaint.words) <= 300
    assert all(line.isprintable() for line in shown(complaint).split("\n"))


def test_a_flood_of_errors_is_cut() -> None:
    body = dumps(
        {"detail": [{"loc": [str(index)], "msg": "Field required", "type": "missing"} for index in range(900)]}
    )
    complaint = read_complaints(422, "application/json", body, CHECK, value({}))
    assert complaint is not None
    assert len(complaint.violations) <= 20


def test_ignores_text_beyond_64_kib() -> None:
    far = b" " * 70_000 + b"json: cannot unmarshal string into Go struct field W.lat of type float64"
    assert read_complaints(400, "text/plain", far, CHECK, value({"lat": "x"})) is None


FRAGMENTS: Final = [
    "cannot unmarshal string into Go struct field ", "Key: 'A.b' Error:Field validation for '", "lat\n  x",
    "Cannot deserialize value of type `a` from String \"x\": ", 'invalid type: string "', "data/a/a/a/", "a.a.a.",
    "✖ Invalid input", '"lat" must be', "The The The ", "Missing required field ", "lat: ", "[{", '{"', " -> ", "<",
    "(through reference chain: ", "'x' is a\n\nFailed validating 'type' in schema", "\n\nOn instance", "items ",
    "expected one of ",
]  # fmt: skip
# Keys that dialects look for.
KEYS: Final = [
    "errors", "loc", "msg", "type", "path", "code", "message", "field", "lat", "detail", "keyword", "instancePath",
    "params", "error", "source", "pointer", "location", "name", "reason", "context", "_errors", "properties", "items",
]  # fmt: skip


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_no_body_takes_long_to_read(fragment: str) -> None:
    sent = value({"stops": [{"lat": index} for index in range(5000)], "lat": 1, "password": "hunter22"})
    started = time.process_time()
    for body in ((fragment * 70_000)[:65_000].encode(), dumps({"errors": [(fragment * 400)[:400]] * 140})):
        read_complaints(400, "application/json", body, CHECK, sent)
    assert time.process_time() - started < 2  # a tenth of it on an idle machine; backtracking would take minutes


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(SECRETS + FRAGMENTS),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=20,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    status=st.sampled_from(sorted(STATUSES)),
    content_type=st.sampled_from(["application/json", "text/html", "", "text/plain; charset=utf-8"]),
    body=st.binary(max_size=400) | st.text().map(str.encode) | json_values.map(lambda one: json.dumps(one).encode()),
    sent=json_values,
)
def test_never_raises_and_shows_no_secret_for_any_answer(
    status: int, content_type: str, body: bytes, sent: Any
) -> None:
    for arguments in (value(sent), ABSENT):
        complaint = read_complaints(status, content_type, body, CHECK, arguments)
        assert not any(secret in shown(complaint) for secret in SECRETS)
        assert complaint is None or (len(complaint.words) <= 300 and len(complaint.violations) <= 20)


# --- what is advised --------------------------------------------------------------------------------------------------
@each_row("row", [row for *_, row in SAMPLES], ids=[f"{name}-{index}" for name, index, _ in SAMPLES])
def test_no_example_is_the_call_that_the_tool_refused_and_what_it_misses_is_in_it(row: dict[str, Any]) -> None:
    complaint, sent = asked(row), value(row["sent"])
    if complaint is None:
        assert "" == row["dialect"]
        return
    check = check_of(row)
    failure = Failure(codes.INVALID_ARGUMENTS, "refused", tuple(complaint.violations), sent=sent)
    policy = ToolPolicy("tool", check, "test")
    call = ToolCall("tool", Document(dumps(sent), sent), "call", Conversation("c", Rung.HEADER))
    result = add_advice(ToolResult(call, failure), policy)

    example = json.loads(result.example) if result.example else None
    assert example != row["sent"]
    for violation in failure.violations:
        name = str(violation.path[-1]) if violation.path else ""
        holder = find_value(value(example), violation.path[:-1]) if violation.path else ABSENT
        if violation.code is codes.REQUIRED_MISSING and isinstance(holder, dict):  # at any depth, declared or not
            assert name in holder
            assert any(f"{name}: " in size for size in result.accepts)
        if violation.code is codes.REQUIRED_MISSING and len(violation.path) == 1 and name in check.root.properties:
            assert name in (example or {})
            optional = f"{name}?: "
            assert result.accepts[0].count(optional) == write_signature(check.root).count(optional) - (
                name not in list_required([check.root])
            )
