"""A container takes no parameters: HPD's twelve cases, its future enhancements, and what the operator may choose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract import container
from proxy.core.contract.container import Dispatch, Expand
from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model import codes
from proxy.core.model.values import (
    Container,
    ContainerFunction,
    Conversation,
    Document,
    Failure,
    FeedbackLimits,
    JsonProblem,
    JsonValue,
    Rung,
    ToolCall,
)
from tests.core.repairing import obj

NUMBER: JsonValue = {"type": "number"}
NAMES = ("Add", "Multiply", "Abs", "Square", "Subtract", "Min", "SolveQuadratic")
MATH = Container("Math", "plugin", tuple(ContainerFunction(name) for name in NAMES))
CONVERSATION = Conversation("c-1", Rung.HEADER)


def call(body: bytes, tool: str = "Math") -> ToolCall:
    value = None if body == b"" else parse(body)
    arguments = value if isinstance(value, JsonProblem) else Document(body, value)
    return ToolCall(tool, arguments, "call_1", CONVERSATION, body)


def check(body: bytes, of: Container = MATH) -> Failure | None:
    return container.check_container(call(body), ToolPolicy(of.name, None, "f", container=of))


def refused(body: bytes, of: Container = MATH) -> Failure:
    failure = check(body, of)
    assert failure is not None
    return failure


# --- detection ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("body", [b"", b"{}", b" { } ", b"null"])
def test_a_container_called_without_parameters_expands(body: bytes) -> None:
    assert check(body) is None


@pytest.mark.parametrize(
    "body", [b'{"function":"Add","a":5,"b":10}', b'{"a":null}', b'{"nested":{"x":{}}}', b"[]", b'"Add"', b"0", b"{"]
)
def test_a_container_called_with_anything_is_refused(body: bytes) -> None:
    assert codes.CONTAINER_INVOCATION is refused(body).code


@pytest.mark.parametrize("source", ["plugin", "mcp", "frontend", "skill"])
def test_containers_of_all_four_sources_are_held_to_the_same_rule(source: str) -> None:
    assert refused(b'{"a":1}', replace(MATH, source=source)).message == (
        "'Math' is a container function that groups related functions. It cannot be called with parameters."
    )


def test_ignores_a_tool_that_is_no_container() -> None:
    assert container.check_container(call(b'{"a":1}'), ToolPolicy("Math", None, "f")) is None


# --- guidance -------------------------------------------------------------------------------------------------------
TWO_CALLS = (
    "This requires TWO separate tool calls: (1) First call 'Math' with NO arguments to expand it. "
    "(2) After expansion succeeds, call the individual function you need."
)


@pytest.mark.parametrize(
    ("guidance", "names"),
    [
        (TWO_CALLS, ()),
        (TWO_CALLS + " Available functions: Add", NAMES[:1]),
        (TWO_CALLS + " Available functions: Add, Multiply, Abs, Square, Subtract", NAMES[:5]),
        (TWO_CALLS + " Available functions: Add, Multiply, Abs, Square, Subtract, ...", NAMES[:6]),
    ],
)
def test_the_guidance_names_the_first_five_functions(guidance: str, names: tuple[str, ...]) -> None:
    of = replace(MATH, functions=tuple(ContainerFunction(name) for name in names))
    assert guidance == container.write_guidance(of)


@pytest.mark.parametrize(
    ("function", "arguments", "sent"),
    [
        ("Add", {"a": 5, "b": 10}, {"function": "Add", "a": 5, "b": 10}),
        ("Add", {"a": 5}, {"function_name": "add", "a": 5}),
        ("Add", {}, {"name": "Add"}),
        ("Add", {"a": 5, "b": 10}, {"functon": "Add", "a": 5, "b": 10}),
        ("Multiply", {"a": 5}, {"tool": "Mutliply", "a": 5}),
        ("Add", {"a": 5}, {"function": "Math.Add", "a": 5}),
        ("Add", {"a": 5}, {"function": "Math__add", "a": 5}),
        ("Add", {"a": 5}, {"name": "Add", "arguments": {"a": 5}}),
        ("Add", {"a": 5}, {"Add": {"a": 5}}),
        ("", {"a": 5, "b": 10}, {"a": 5, "b": 10}),
        ("", {"function": "Quaternion"}, {"function": "Quaternion"}),
        ("", {"function": 5}, {"function": 5}),
        ("", {}, [1, 2]),
    ],
)
def test_the_function_that_was_meant_is_found(function: str, arguments: JsonValue, sent: JsonValue) -> None:
    misuse = refused(dumps(sent)).container
    assert misuse is not None
    assert (function, arguments, sent) == (misuse.function, misuse.arguments, misuse.attempted)


ADD = ToolPolicy("Add", compile_check({**obj(a=NUMBER, b=NUMBER), "required": ["a", "b"]}), "f")
ANY = ToolPolicy("Add", None, "f")
FIRST = "You probably want 'Add': after expanding 'Math', call 'Add'"
SAME = f"{FIRST} with the same arguments, without `function`."


def advised(sent: JsonValue, function: ToolPolicy = ADD, of: Container = MATH) -> str:
    failure = refused(dumps(sent), of)
    inner = container.make_function_call(call(dumps(sent)), failure)
    assert inner is not None
    return container.advise_call(failure, decide(inner, function), FeedbackLimits()).hint


def test_repeats_no_argument_that_the_function_has_not_accepted() -> None:
    assert refused(b'{"function":"Ad","a":5,"b":10}').hint == SAME
    assert refused(b'{"function":"Add","arguments":{"a":5}}').hint == f"{FIRST} with what you sent in `arguments`."
    assert refused(b'{"Add":{"a":5}}').hint == f"{FIRST} with what you sent in `Add`."
    assert refused(b'{"name":"Add"}').hint == f"{FIRST}."
    assert refused(b'{"a":5}').hint == ""


def test_shows_an_accepted_call_in_full_if_it_is_short() -> None:
    assert f'{FIRST} with {{"a": 5, "b": 10}}.' == advised({"function": "Ad", "a": 5, "b": 10})
    assert f'{FIRST} with {{"a": 1.50, "b": 2}}.' == advised(parse(b'{"function":"Add","arguments":{"a":1.50,"b":2}}'))
    dispatched = replace(MATH, auto_expand="dispatch")
    assert 'You probably want {"function": "Add", "arguments": {"a": 5, "b": 10}}.' == advised(
        {"function": "Ad", "a": 5, "b": 10}, of=dispatched
    )


@pytest.mark.parametrize(
    "value",
    ["x" * 60, "/srv/data/2026/report.txt", "C:\\Users\\al\\a.txt", "sk-abcdefghijklmnopqrstuvwx0123", [1] * 40],
)
def test_names_the_same_arguments_if_they_are_not_shown_in_full(value: JsonValue) -> None:
    assert SAME == advised({"function": "Add", "a": value}, ANY)
    assert SAME == advised({"function": "Add", "password": "hunter2"}, ANY)


def test_says_what_the_function_would_refuse() -> None:
    assert f"{SAME} Change first: send number at /a; add /b (number)." == advised({"function": "Add", "a": "five"})
    closed = ToolPolicy("Add", compile_check({"type": "object", "additionalProperties": False}), "f")
    assert f"{SAME} Change first: rename or leave out /c." == advised({"function": "Add", "c": 1}, closed)
    many = {f"k{number}": number for number in range(5)}
    assert advised({"function": "Add", **many}, closed).endswith("rename or leave out /k2 (+2 more).")
    assert f"{FIRST}. Change first: add /a (number); add /b (number)." == advised({"function": "Add"})


def test_asks_for_the_exact_name_of_a_function_to_dispatch() -> None:
    dispatched = replace(MATH, auto_expand="dispatch")
    assert "You probably want 'Add': send exactly this name as `function`, and the same arguments as `arguments`." == (
        refused(b'{"function":"Ad","a":5}', dispatched).hint
    )
    assert "You probably want 'Add': send exactly this name as `function`." == (
        refused(b'{"function":"Ad"}', dispatched).hint
    )


# --- dot notation ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tool", ["Math.Add", "Math/Add", "Math::Add", "Math__Add", "Math:Add", "Math.add", "Math.Ad"])
def test_names_the_function_when_it_is_called_through_its_container(tool: str) -> None:
    failure = container.explain_dotted_name(tool, {"Math": MATH})
    assert failure is not None
    assert (codes.CONTAINER_INVOCATION, "Call 'Add' by its own name.") == (failure.code, failure.hint)
    assert f"'{tool}' is not a tool" in failure.message


@pytest.mark.parametrize("tool", ["Math", "Math.", "Maths.Add", "Add", "", "."])
def test_other_unknown_names_are_no_dot_notation(tool: str) -> None:
    assert container.explain_dotted_name(tool, {"Math": MATH}) is None


# --- auto_expand ----------------------------------------------------------------------------------------------------
def instead(body: bytes, of: Container, seen_before: bool = False) -> Expand | Dispatch | None:
    return container.expand_or_dispatch(call(body), refused(body, of), seen_before)


def test_by_default_nothing_happens_in_place_of_a_refusal() -> None:
    assert instead(b'{"function":"Add","a":5}', MATH) is None


def test_expand_expands_the_container_once_an_episode() -> None:
    of = replace(MATH, auto_expand="expand")
    expanded = Expand(ToolCall("Math", Document(b"{}", {}), "call_1", CONVERSATION))
    assert expanded == instead(b'{"function":"Add","a":5}', of)
    assert instead(b'{"function":"Add","a":5}', of, seen_before=True) is None


def test_dispatch_calls_the_one_function_named_exactly() -> None:
    of = replace(MATH, auto_expand="dispatch")
    arguments = {"a": 5, "b": "x"}
    dispatched = Dispatch(ToolCall("Add", Document(b'{"a":5,"b":"x"}', arguments), "call_1", CONVERSATION))
    assert dispatched == instead(b'{"function":"Add","a":5,"b":"x"}', of)


def test_a_dispatched_number_keeps_its_text() -> None:
    found = instead(b'{"function":"Add","a":1.50}', replace(MATH, auto_expand="dispatch"))
    assert isinstance(found, Dispatch)
    assert isinstance(found.call.arguments, Document)
    assert found.call.arguments.text == b'{"a":1.50}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"function":"add","a":5}',
        b'{"function":"Add","name":"Multiply","a":5}',
        b'{"a":5}',
        b'{"Add":{"a":5}}',
        b'["Add"]',
    ],
    ids=["near name", "two names", "no name", "name as key", "no object"],
)
def test_dispatch_never_guesses(body: bytes) -> None:
    assert instead(body, replace(MATH, auto_expand="dispatch")) is None


def test_asks_for_two_calls_when_the_function_is_not_served() -> None:
    body = b'{"function":"Add","arguments":{"a":5,"b":10}}'
    assert refused(body, MATH) == container.ask_for_two_calls(refused(body, replace(MATH, auto_expand="dispatch")))


def test_only_a_misused_container_is_dispatched() -> None:
    of = replace(MATH, auto_expand="dispatch")
    dotted = container.explain_dotted_name("Math.Add", {"Math": of})
    assert dotted is not None
    assert container.expand_or_dispatch(call(b'{"a":5}', "Math.Add"), dotted, False) is None
    assert container.expand_or_dispatch(call(b"{}"), Failure(codes.INVALID_ARGUMENTS, ""), False) is None


# --- expansion ------------------------------------------------------------------------------------------------------
def test_an_expansion_lists_functions_with_descriptions_and_schemas() -> None:
    add = ContainerFunction("Add", "Adds two numbers.", {"type": "object"})
    assert {
        "success": True,
        "container": "Math",
        "source": "plugin",
        "message": "Math expanded. Functions: Add, Multiply",
        "functions": [
            {"name": "Add", "description": "Adds two numbers.", "parameters": {"type": "object"}},
            {"name": "Multiply", "description": "", "parameters": {}},
        ],
    } == container.make_expansion(replace(MATH, functions=(add, ContainerFunction("Multiply"))))


def test_an_automatic_expansion_says_that_parameters_were_ignored() -> None:
    assert (
        "Math expanded. Functions: Add. Your parameters were ignored: now call the function you need by its own name."
        == container.make_expansion(replace(MATH, functions=MATH.functions[:1]), ignored_parameters=True)["message"]
    )


@pytest.mark.parametrize(
    ("refused_first", "member_of", "expanded"),
    [
        (False, None, False),
        (False, MATH, False),
        (False, replace(MATH, require_expansion=True), True),
        (True, replace(MATH, require_expansion=True), False),
    ],
    ids=["no member", "not required", "expanded", "not expanded"],
)
def test_a_function_waits_for_its_container_only_if_required(
    refused_first: bool, member_of: Container | None, expanded: bool
) -> None:
    failure = container.check_expanded(ToolPolicy("Add", None, "f", member_of=member_of), expanded)
    assert refused_first == (failure is not None and failure.code is codes.CONTAINER_NOT_EXPANDED)


def test_an_expansion_belongs_to_its_conversation() -> None:
    other = Conversation("c-2", Rung.HEADER)
    assert container.make_expansion_key(CONVERSATION, "Math") != container.make_expansion_key(other, "Math")
    assert container.make_expansion_key(CONVERSATION, "Math") != container.make_expansion_key(CONVERSATION, "Text")
