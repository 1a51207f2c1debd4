"""A model may copy whatever JSON a text shows: each leaf was sent, comes whole from the schema, or is `<...>`.

Long paths, long texts, long lists, deep objects, secrets, constants and enums run through every wire format, container
advice, unknown tool names, the questions of corrections, and the model side.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.check.validation import compile_check
from proxy.core.contract import attempts as contract
from proxy.core.contract.container import advise_call, make_function_call, make_misuse_failure
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.decide import decide
from proxy.core.display.suggestions import make_unknown_tool_failure
from proxy.core.envelope import FORMATS, render_failure
from proxy.core.envelope.feedback import write_feedback
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import (
    Container,
    ContainerFunction,
    Conversation,
    Document,
    FeedbackLimits,
    JsonValue,
    Reject,
    Rung,
    ToolCall,
    ToolResult,
)
from proxy.core.rules.rules import select_rules
from proxy.extensions.chat.core.found_calls import FoundCall
from proxy.extensions.chat.server.asking_again import write_results
from proxy.extensions.chat.server.call_judge import JudgedCall
from proxy.extensions.correction.core.words import Layer
from proxy.extensions.correction.questions import load_prompt, write_json, write_messages
from proxy.extensions.correction.trajectory import hide_secrets
from tests.generated import examples

ALONE = Conversation("c", Rung.HEADER)
LONG_PATH = "/home/alice/projects/app/config/settings.yaml"
LONG_TEXT = "first line\n" + "x" * 300 + "\nlast line: keep me"
LONG_LIST: list[JsonValue] = list(range(60))
DEEP: JsonValue = {"a": {"b": {"c": {"d": {"e": {"f": {"g": "bottom"}}}}}}}
KEY = "sk-abcdefghijklmnopqrstuvwx0123456789"
OWN_PATHS = ("/etc/app/conf/x", "/srv/in/a", "/srv/in/b")
OWN_LONG = "L" * 70

SCHEMAS: dict[str, Any] = {
    "path": {"type": "string"},
    "content": {"type": "string", "maxLength": 400},
    "count": {"type": "integer", "minimum": 1},
    "maybe": {"type": ["integer", "null"]},
    "tags": {"type": "array", "items": {"type": "string"}},
    "numbers": {"type": "array", "items": {"type": "integer"}},
    "rows": {"type": "array", "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"},
             "file": {"type": "string"}}}},
    "deep": {"type": "object"},
    "nested": {"type": "object", "required": ["mode"], "properties": {"mode": {"enum": ["create", "append"]},
               "path": {"type": "string"}}},
    "password": {"type": "string", "minLength": 3},
    "api_key": {"enum": ["public", "private"]},
    "token": {"type": "string", "x-sensitive": True},
    "constant": {"const": OWN_PATHS[0]},
    "place": {"enum": [*OWN_PATHS[1:]]},
    "long": {"enum": [OWN_LONG, "M" * 70]},
    "one": {"const": OWN_LONG},
    "key": {"const": KEY},
    "either": {"anyOf": [{"const": "all"}, {"type": "object", "properties": {"path": {"type": "string"}}}]},
}  # fmt: skip

VALUES = st.sampled_from(
    [LONG_PATH, "C:\\Users\\alice\\notes.txt", LONG_TEXT, "bug, urgent", "short", "", KEY,
     "hunter2-hunter2", "create", "apend",
     "<b>x</b>", OWN_PATHS[0], OWN_PATHS[1], OWN_LONG, "M" * 70, "public", 0, 7, 12345678901234567890, None, True,
     "seven", LONG_LIST, DEEP, [LONG_PATH],
     [{"id": 1, "file": LONG_PATH}, {"id": "two", "file": LONG_TEXT}], [{"id": number} for number in range(40)],
     [{"id": number} for number in [*range(40), "x"]], {"mode": "create", "path": LONG_PATH}, {"mode": "wrong"},
     {LONG_PATH: LONG_PATH, "path": LONG_PATH}, {"password": "hunter2-hunter2", "note": LONG_TEXT}, [], {}]
)  # fmt: skip
KEYS = st.sampled_from([*SCHEMAS, "Path", "contents", "cnt", LONG_PATH, "pass_word", "modes"])


@st.composite
def refused(draw: st.DrawFn) -> tuple[dict[str, Any], JsonValue]:
    names = draw(st.lists(st.sampled_from(sorted(SCHEMAS)), min_size=1, max_size=6, unique=True))
    schema = {
        "type": "object",
        "properties": {name: SCHEMAS[name] for name in names},
        "required": draw(st.lists(st.sampled_from(names), max_size=4, unique=True)),
        "additionalProperties": draw(st.booleans()),
    }
    own = st.one_of(st.sampled_from(names), KEYS)
    return schema, draw(st.one_of(st.dictionaries(own, VALUES, max_size=6), VALUES))


# --- what a text shows ------------------------------------------------------------------------------------------------
def list_json(text: str) -> Iterator[JsonValue]:
    """Every JSON object, list and double-quoted text in a text, the outermost ones."""
    decoder, at = json.JSONDecoder(), 0
    while (found := re.compile(r'[{\["]').search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, found.start())
        except ValueError:
            at = found.start() + 1
            continue
        yield value


def list_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from list_leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from list_leaves(item)
    else:
        yield value


PLACEHOLDER = re.compile(r"<.+>", re.DOTALL)


def find_untrue(text: str, *known: Any) -> list[Any]:
    """The leaves of the JSON in a text that are neither known whole, or between the commas of one, nor `<...>`."""
    leaves = [leaf for value in known for leaf in list_leaves(value)]
    leaves += [piece.strip() for leaf in leaves if isinstance(leaf, str) and "," in leaf for piece in leaf.split(",")]
    return [
        leaf
        for value in list_json(text)
        for leaf in list_leaves(value)
        if not (isinstance(leaf, str) and PLACEHOLDER.fullmatch(leaf))
        and not any(type(leaf) is type(each) and leaf == each for each in leaves)
    ]


QUOTED = re.compile(r"'([^'\n]*)'")


def find_cut_members(text: str, schema: dict[str, Any]) -> list[str]:
    """The values in single quotes behind `Expected` and `Accepts` that the schema does not hold whole."""
    whole = set(list_leaves(schema))
    lines = [line for line in text.split("\n") if line.startswith(("  Expected: ", "Accepts: "))]
    return [value for line in lines for value in QUOTED.findall(line) if value not in whole]


# --- the texts --------------------------------------------------------------------------------------------------------
def refuse(
    schema: dict[str, Any], sent: JsonValue, failures: int = 1
) -> tuple[ToolPolicy, ToolCall, ToolResult] | None:
    policy = ToolPolicy("write_file", compile_check(schema), "t", repair=RepairPolicy(select_rules("standard")))
    call = ToolCall("write_file", Document(dumps(sent), sent), "call_1", ALONE)
    decision = decide(call, policy)
    if not isinstance(decision, Reject):
        return None
    recorded = None
    for number in range(failures):
        attempt = contract.make_failed_attempt(decision.failure, str(number))
        recorded = contract.add(recorded.episode if recorded else None, attempt)
    return policy, call, add_advice(contract.grant_attempt(call, decision.failure, recorded, policy), policy)


@settings(max_examples=examples(300))
@given(refused(), st.sampled_from([1, 3]), st.booleans())
def test_shows_no_json_that_was_not_sent_in_a_refusal(
    case: tuple[dict[str, Any], JsonValue], failures: int, marks: bool
) -> None:
    schema, sent = case
    if (found := refuse(schema, sent, failures)) is None:
        return
    result = found[2]
    if marks:
        result = replace(result, limits=replace(result.limits, marks=True))
    text = write_feedback(result)

    assert [] == find_untrue(text, sent, schema)
    assert [] == find_cut_members(text, schema)
    assert len(text) <= result.limits.max_chars


@settings(max_examples=examples(60))
@given(refused(), st.sampled_from([1, 3]), st.sampled_from(sorted(FORMATS)))
def test_shows_no_json_that_was_not_sent_in_any_wire_format(
    case: tuple[dict[str, Any], JsonValue], failures: int, name: str
) -> None:
    schema, sent = case
    if (found := refuse(schema, sent, failures)) is None:
        return
    body = json.loads(render_failure(found[2], name, "category").body)
    inner = [leaf for leaf in list_leaves(body) if isinstance(leaf, str)]

    assert [] == [untrue for text in inner for untrue in find_untrue(text, sent, schema)]
    assert [] == find_untrue(json.dumps(list(find_echoes(body))), sent, schema)


def find_echoes(value: Any) -> Iterator[Any]:
    """The arguments that the part for machines repeats as JSON."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if key in ("attempted_parameters", "attempted_value") or (key == "arguments" and "tool" in value):
            yield from [] if item is None else [item]
        yield from find_echoes(item)
    for item in value if isinstance(value, list) else ():
        yield from find_echoes(item)


@settings(max_examples=examples(60))
@given(refused())
def test_shows_no_json_that_was_not_sent_in_the_question_of_a_correction(
    case: tuple[dict[str, Any], JsonValue],
) -> None:
    schema, sent = case
    if (found := refuse(schema, sent)) is None:
        return
    policy, call, result = found
    own = {
        "arguments": write_json(hide_secrets(sent, policy.feedback)),
        "attempt": "1",
        "query": "q",
        "trajectory": "[]",
    }
    for layer in Layer:
        prompt = load_prompt(layer).partition("---")[2]
        messages = write_messages(prompt, call, result.failure, policy, own)
        hidden = [leaf for leaf in list_leaves(hide_secrets(sent, policy.feedback)) if "***" in str(leaf)]
        assert [] == find_untrue(messages[-1]["content"], sent, schema, hidden)


@settings(max_examples=examples(60))
@given(refused())
def test_shows_no_json_that_was_not_sent_in_the_question_to_a_model_server(
    case: tuple[dict[str, Any], JsonValue],
) -> None:
    schema, sent = case
    if (found := refuse(schema, sent)) is None:
        return
    policy, call, result = found
    judged = JudgedCall(FoundCall("call_1", call.tool, b""), call, call.tool, policy, failure=result.failure)
    ((_, text),) = write_results([judged], 1, 2)

    assert [] == find_untrue(text, sent, schema)


CONTAINERS = st.sampled_from(["off", "expand", "dispatch"])


@settings(max_examples=examples(200))
@given(
    st.dictionaries(st.one_of(st.sampled_from(["path", "content"]), KEYS), VALUES, max_size=4),
    st.sampled_from(["beside", "wrapped", "key", "near"]),
    CONTAINERS,
    st.sampled_from(["", *sorted(FORMATS)]),
)
def test_shows_no_call_of_a_function_that_was_not_sent(
    arguments: dict[str, JsonValue], form: str, auto: Any, name: str
) -> None:
    schema = {"type": "object", "properties": {"path": SCHEMAS["path"], "content": SCHEMAS["content"]},
              "required": ["path"], "additionalProperties": False}  # fmt: skip
    sent: JsonValue = {
        "beside": {**arguments, "function": "write_file"},
        "wrapped": {"function": "write_file", "arguments": arguments},
        "key": {"write_file": arguments},
        "near": {**arguments, "function": "write_fil"},
    }[form]
    files = Container("Files", functions=(ContainerFunction("write_file"),), auto_expand=auto)
    policy = ToolPolicy("write_file", compile_check(schema), "t")
    failure = make_misuse_failure(files, sent)
    inner = make_function_call(ToolCall("Files", Document(dumps(sent), sent), "c", ALONE), failure)
    advised = [failure] if inner is None else [failure, advise_call(failure, decide(inner, policy), FeedbackLimits())]
    for each in advised:
        result = ToolResult(ToolCall("Files", Document(dumps(sent), sent), "c", ALONE), each)
        texts = [write_feedback(result)]
        if name:
            body = json.loads(render_failure(result, name, "category").body)
            texts = [leaf for leaf in list_leaves(body) if isinstance(leaf, str)]
            texts.append(json.dumps(list(find_echoes(body))))
        for text in texts:
            assert [] == find_untrue(text, sent, ["write_file", "function", "arguments", "<name>"])


@given(st.sampled_from([LONG_PATH, LONG_TEXT, KEY, "write_fil", "token=abcdef", "write_file_2"]))
def test_shows_no_json_that_was_not_sent_for_an_unknown_tool(name: str) -> None:
    result = ToolResult(
        ToolCall(name, Document(b"{}", {}), "c", ALONE),
        make_unknown_tool_failure(name, ["write_file", "read_file", "a" * 90]),
    )
    assert [] == find_untrue(write_feedback(result), name)
