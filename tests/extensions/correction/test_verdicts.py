"""From an endpoint's answer to a verdict: both shapes of the seeds, out of Markdown and prose, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.extensions.correction.core.words import Layer
from proxy.extensions.correction.rules import Action
from proxy.extensions.correction.verdicts import (
    ModelVerdict,
    Unusable,
    find_object,
    make_verdict,
    read_content,
    read_verdict,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "message", "content", "can_fix", "suggested_changes"]), inner)
    ),
    max_leaves=12,
)
AGENT: dict[str, Any] = {
    "can_fix": True,
    "analysis": "TX",
    "corrected_payload": {"location": "Flower Mound, Texas, US"},
}
TEXT = json.dumps(AGENT)

WRAPPED = {
    "bare": TEXT,
    "spaces around": f"\n  {TEXT}\n",
    "a fence": f"```json\n{TEXT}\n```",
    "a fence without a language": f"```\n{TEXT}\n```",
    "a fence in prose": f"Sure! Here it is:\n\n```json\n{TEXT}\n```\nHope that {{helps}}.",
    "prose": f"The answer is {TEXT}. Anything else?",
    "braces in the prose": f"Because {{TX}} is a state: {TEXT}",
    "the call repeated before it": f'You sent {{"location": "Flower Mound, TX"}}, so: {TEXT}',
    "said twice": f"{TEXT}\n{TEXT}",
    "thoughts before it": f'<think>maybe {{"can_fix": false}}?</think>{TEXT}',
    "a brace in a string": json.dumps(AGENT | {"analysis": 'a "}" and a {'}) + " done",
}


@pytest.mark.parametrize("name", WRAPPED)
def test_the_answer_is_found_in_what_is_around_it(name: str) -> None:
    found = find_object(WRAPPED[name])
    assert isinstance(found, dict)
    assert AGENT["corrected_payload"] == found["corrected_payload"]


LOST = {
    "nothing": ("", Unusable.NOT_JSON),
    "prose alone": ("I cannot do that.", Unusable.NOT_JSON),
    "half an object": (TEXT[:-3], Unusable.NOT_JSON),
    "an array of objects": (f"[{TEXT}]", Unusable.NOT_JSON),
    "two verdicts": (f'{TEXT} or {{"can_fix": false}}', Unusable.AMBIGUOUS),
    "two objects": ('{"a": 1} or {"a": 2}', Unusable.AMBIGUOUS),
    "many braces": ("{" * 100_000, Unusable.NOT_JSON),
    "many quotes": ('{"' * 50_000, Unusable.NOT_JSON),
    "a string without an end": ('{"' + '\\"' * 50_000, Unusable.NOT_JSON),
    "a fence without an end": ("```\n" + " " * 100_000, Unusable.NOT_JSON),
    "many fences": ("```\n" * 50_000, Unusable.NOT_JSON),
}


@pytest.mark.parametrize("name", LOST)
def test_doubt_is_no_answer(name: str) -> None:
    text, why = LOST[name]
    assert why is find_object(text)


VERDICTS: list[tuple[dict[str, Any], ModelVerdict | Unusable, Action | None]] = [
    (AGENT, ModelVerdict(True, False, AGENT["corrected_payload"]), Action.CHANGE),
    ({"can_fix": False, "analysis": "key"}, ModelVerdict(False), Action.STOP),
    ({"can_fix": False, "corrected_payload": {"a": 1}}, ModelVerdict(False, False, {"a": 1}), Action.STOP),
    ({"should_retry": True, "corrected_parameters": {"amount": 46828.5}},
     ModelVerdict(True, False, None, {"amount": 46828.5}), Action.CHANGE),
    ({"should_retry": True, "suggested_changes": {"a": 1}}, ModelVerdict(True, False, None, {"a": 1}), Action.CHANGE),
    ({"should_retry": True, "suggested_changes": {}}, ModelVerdict(True, False, None, {}), Action.AGAIN),
    ({"should_retry": True, "suggested_changes": None}, ModelVerdict(True), Action.AGAIN),
    ({"should_retry": False, "is_transient_error": True}, ModelVerdict(False, True), Action.BACK_OFF),
    ({"should_retry": False, "is_transient_error": False}, ModelVerdict(False), Action.STOP),
    ({"corrected_payload": {"a": 1}}, ModelVerdict(True, False, {"a": 1}), Action.CHANGE),
    ({"lat": 35.6897}, ModelVerdict(True, False, {"lat": 35.6897}), Action.CHANGE),
    ({"can_fix": "true"}, Unusable.SHAPE, None),
    ({"should_retry": True, "suggested_changes": ["a"]}, Unusable.SHAPE, None),
    ({"should_retry": True, "is_transient_error": 1}, Unusable.SHAPE, None),
    ({"can_fix": True, "should_retry": False}, Unusable.SHAPE, None),
    ({"can_fix": True, "corrected_payload": {}, "suggested_changes": {}}, Unusable.AMBIGUOUS, None),
]  # fmt: skip


@pytest.mark.parametrize(("told", "verdict", "action"), VERDICTS, ids=[json.dumps(row[0]) for row in VERDICTS])
def test_both_shapes_of_the_seeds_are_read(
    told: dict[str, Any], verdict: ModelVerdict | Unusable, action: Action | None
) -> None:
    found = make_verdict(told, Layer.VALIDATION_FEEDBACK)
    assert verdict == found
    assert action == (found.action if isinstance(found, ModelVerdict) else None)


def test_bare_arguments_are_an_answer_only_to_layer_3() -> None:
    assert Unusable.SHAPE is make_verdict({"lat": 1}, Layer.SEMANTIC_RETRY)


@given(st.binary(max_size=300) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_reading_never_raises(body: bytes) -> None:
    for layer in Layer:
        assert isinstance(read_verdict(body, layer), ModelVerdict | Unusable)


@given(st.text(max_size=300))
def test_any_text_is_an_object_or_no_answer(text: str) -> None:
    assert isinstance(find_object(text), dict | Unusable)
    completion = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    found = read_content(completion)
    assert (text if text.strip() else Unusable.NOT_JSON) == found or "\ud800" <= max(text, default="") <= "\udfff"
