"""Properties of every schema and every value: valid calls stay, repaired ones validate, nothing raises."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from proxy.core.check.validation import Check, SchemaError, compile_check
from proxy.core.contract.policy import RepairPolicy, ToolPolicy, UnknownKeys
from proxy.core.decide import decide
from proxy.core.explain.advice import make_example
from proxy.core.explain.expectation import describe_expectation
from proxy.core.explain.explain import list_violations
from proxy.core.explain.signature import write_signature
from proxy.core.explain.undeclared import find_unknown_fields, list_notices
from proxy.core.json.jsontext import TextLimits, are_equal, dumps, parse, read_document
from proxy.core.model.codes import Severity
from proxy.core.model.values import (
    ABSENT,
    Conversation,
    Document,
    Forward,
    JsonProblem,
    JsonValue,
    Reject,
    Repair,
    Rung,
    ToolCall,
)
from proxy.core.repair.engine import repair
from proxy.core.repair.respell import respell_integers
from proxy.core.rules.rules import LEVELS, TEXT_RULES, select_rules
from tests.core.repairing import DROP_KEYS
from tests.core.schemas import odd_schemas, schemas, values
from tests.corpora.generate import as_text, damaged, random_value
from tests.generated import examples

THOROUGH = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))

levels = st.sampled_from(LEVELS)


def compiled(schema: JsonValue) -> Check:
    """The check of a schema; a schema that does not compile is another draw."""
    try:
        return compile_check(schema)
    except SchemaError:
        assume(False)
        raise


@st.composite
def sendings(draw: st.DrawFn) -> tuple[JsonValue, JsonValue]:
    """A schema and what a model might send: anything, or a valid value with a model's mistakes in it."""
    schema, kind, chance = draw(schemas()), draw(st.integers(0, 3)), Random(draw(st.integers(0, 10**6)))
    if kind == 0:
        return schema, draw(values())
    check = compiled(schema)
    right = random_value(check, chance)
    assume(right is not ABSENT)
    return schema, as_text(check, right, chance) if kind == 1 else damaged(right, chance)


def rules(level: str) -> RepairPolicy:
    return RepairPolicy(select_rules(level), DROP_KEYS if level == "lenient" else frozenset())


def decided(check: Check, text: bytes, level: str, unknown: UnknownKeys = UnknownKeys.SCHEMA) -> Forward | Reject:
    on = rules(level)
    document = read_document(text, TextLimits(), on.rules & TEXT_RULES)
    policy = ToolPolicy("tool", check, "f", repair=on, unknown_keys=unknown)
    return decide(ToolCall("tool", document, "call_1", Conversation("c-1", Rung.HEADER), text), policy)


@THOROUGH
@given(schemas(), st.integers(0, 10**6), levels)
def test_a_valid_call_is_never_changed(schema: JsonValue, seed: int, level: str) -> None:
    check = compiled(schema)
    value = random_value(check, Random(seed))
    assume(value is not ABSENT)
    text = dumps(value)
    decision = decided(check, text, level)
    assert isinstance(decision, Forward)
    made = {repair.rule for repair in decision.checked.repairs}
    assert text == decision.checked.arguments or made == {"integral_float"}
    assert are_equal(value, decision.checked.value)


@THOROUGH
@given(sendings(), levels)
def test_a_forwarded_call_is_valid_and_repairing_it_again_changes_nothing(
    sending: tuple[JsonValue, JsonValue], level: str
) -> None:
    schema, value = sending
    check = compiled(schema)
    decision = decided(check, dumps(value), level)
    if isinstance(decision, Reject):
        assert decision.failure.violations
        return
    sent = parse(decision.checked.arguments)
    assert check.accepts(sent)
    again = decided(check, decision.checked.arguments, level)
    assert isinstance(again, Forward)
    assert (decision.checked.arguments, ()) == (again.checked.arguments, again.checked.repairs)


@THOROUGH
@given(sendings(), levels)
def test_an_accepted_value_is_changed_or_reported_only_by_respelling_and_notices(
    sending: tuple[JsonValue, JsonValue], level: str
) -> None:
    schema, value = sending
    text, on = dumps(value), rules(level)
    check, sent = compiled(schema), parse(text)
    assume(check.accepts(sent))
    respelt, made = respell_integers(check, sent, on)
    decision = decided(check, text, level)
    assert isinstance(decision, Forward)
    assert (dumps(respelt) if made else text, made, tuple(list_notices(check, respelt))) == (
        decision.checked.arguments, decision.checked.repairs, decision.checked.warnings
    )  # fmt: skip


@THOROUGH
@given(schemas(), values(), levels)
def test_every_leaf_that_no_repair_names_is_the_one_that_was_sent(
    schema: JsonValue, value: JsonValue, level: str
) -> None:
    check = compiled(schema)
    sent = parse(dumps(value))
    made = repair(check, sent, rules(level))
    assume(made.accepted)
    assert sent_leaves(sent, made.repairs) <= leaves(made.value)
    assert made.repairs or dumps(sent) == dumps(made.value)


def sent_leaves(value: JsonValue, repairs: tuple[Repair, ...]) -> set[bytes]:
    """The texts of all leaves without a repair at, above or (for the whole object) next to them."""
    touched = {made.path for made in repairs if made.rule != "key_case"}
    return {
        dumps(leaf)
        for path, leaf in _walk(value, ())
        if not any(path[: len(place)] == place for place in touched | _renamed_below(touched, repairs, path))
    }


def _renamed_below(
    touched: set[tuple[str | int, ...]], repairs: tuple[Repair, ...], path: tuple[str | int, ...]
) -> set[tuple[str | int, ...]]:
    """Returns where keys were renamed, repairs below name the new key: everything under a renamed key is left out."""
    renamed = {made.path for made in repairs if made.rule in ("key_case", "unwrap_arguments", "fill_default")}
    return {path} if any(path[: len(place)] == place for place in renamed) and touched else set()


def leaves(value: JsonValue) -> set[bytes]:
    return {dumps(leaf) for _, leaf in _walk(value, ())}


def _walk(value: JsonValue, path: tuple[str | int, ...]) -> list[tuple[tuple[str | int, ...], JsonValue]]:
    if isinstance(value, dict) and value:
        return [found for key, item in value.items() for found in _walk(item, (*path, key))]
    if isinstance(value, list) and value:
        return [found for index, item in enumerate(value) for found in _walk(item, (*path, index))]
    return [(path, value)]


@THOROUGH
@given(sendings(), levels)
def test_forwards_no_unknown_key_if_they_are_refused(sending: tuple[JsonValue, JsonValue], level: str) -> None:
    schema, value = sending
    check = compiled(schema)
    decision = decided(check, dumps(value), level, UnknownKeys.REFUSE)
    if isinstance(decision, Forward):
        assert check.accepts(decision.checked.value)
        assert [] == list(find_unknown_fields(check, decision.checked.value, Severity.ERROR))


@THOROUGH
@given(schemas())
def test_an_example_is_valid_or_says_that_it_is_not(schema: JsonValue) -> None:
    check = compiled(schema)
    shown, is_valid = make_example(check)
    assert is_valid == (shown is not ABSENT and check.accepts(shown))


@THOROUGH
@given(odd_schemas(), values(), levels)
def test_nothing_raises_for_any_schema_that_compiles(schema: JsonValue, value: JsonValue, level: str) -> None:
    check = compiled(schema)
    sent = parse(dumps(value))
    decision = decided(check, dumps(value), level, UnknownKeys.REFUSE)
    made = repair(check, sent, rules(level))
    if not check.accepts(sent):
        assert list_violations(check, sent, made.ambiguous)
    list(list_notices(check, sent))
    assert isinstance(write_signature(check.root) + describe_expectation(check.root), str)
    assert make_example(check, sent) == make_example(check, sent)
    assert isinstance(decision, Forward | Reject)


@THOROUGH
@given(st.binary(max_size=200), levels)
@example(b'{"a":1,}', "lenient")
def test_nothing_raises_for_any_bytes(text: bytes, level: str) -> None:
    classes = select_rules(level) & TEXT_RULES
    document = read_document(text, TextLimits(), classes)
    if isinstance(document, Document) and document.repairs:
        assert isinstance(parse(text), JsonProblem)
        assert are_equal(document.value, parse(document.text))


_PIECES = st.sampled_from(
    ["{", "}", "[", "]", ":", ",", '"', "'", "\\", "//", "/*", "*/", "```", "json", "\n", "\t", " ", "a", '"a"', "1",
    "-1.50",
     "True", "None", "true", "null", "C:\\", "\\u00e9", "é", '{"a":1}', "\x00", "NaN", "1e999"]
)  # fmt: skip


@THOROUGH
@given(st.lists(_PIECES, max_size=25).map("".join))
@example("{'a':1}")
@example('```json\n{"a":-1.50,}\n```')
def test_repairs_a_text_without_inventing_or_losing_a_word(text: str) -> None:
    document = read_document(text.encode(), TextLimits(), TEXT_RULES)
    if isinstance(document, JsonProblem) or not document.repairs:
        return
    made = {repair.rule for repair in document.repairs}
    kept = [character for character in document.text.decode() if character.isdigit()]
    sent = [character for character in text if character.isdigit()]
    if not made & {"repeated_body", "trailing_text", "comments", "control_characters"}:
        assert sent == kept
    opened = [sum(part.count(bracket) for part in (text,)) for bracket in "{["]
    assert all(document.text.decode().count(bracket) <= count for bracket, count in zip("{[", opened, strict=True))
