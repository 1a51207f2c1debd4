"""Tool names that are not known in the spelling of the call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.contract.toolname import FOLD_RULE, RULE, find_known_name, trim, unfold
from proxy.core.explain.explain import explain_unknown_tool
from proxy.core.model import codes
from proxy.core.model.values import Container, ContainerFunction, Conversation, Document, JsonProblem, Rung, ToolCall

KNOWN = frozenset({"get_weather", "create_event", "analysis_of"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("get_weather<|channel|>commentary", "get_weather"),
        ("create_event<|channel|>analysis", "create_event"),
        ("<|tool|>get_weather<|x|>", "get_weather"),
        ("get_weather<|x|>get_weather", "get_weather"),
        ("functions.get_weather", "get_weather"),
        ("tools.get_weather", "get_weather"),
        ("default_api.get_weather", "get_weather"),
        ("mcp__weather-server__get_weather", "get_weather"),
        ("mcp__my_server__get_weather", "get_weather"),
        ("functions.get_weather<|channel|>json", "get_weather"),
        ("functions.get_weather:0", "get_weather"),
        ("get_weather:12", "get_weather"),
        ('"get_weather"', "get_weather"),
        (" `functions.get_weather:3` ", "get_weather"),
    ],
)
def test_a_known_name_inside_what_a_template_left_is_found(name: str, meant: str) -> None:
    assert meant == trim(name, KNOWN)


@pytest.mark.parametrize(
    "name",
    [
        "get_weather",  # known as it is
        "getweather",
        "Get_Weather",
        "functions.",
        "functions.tools.get_weather",
        "Math.get_weather",  # a container's name is not a prefix
        "tool:get_weather",
        "get_weather.create_event",
        "get_weather<|x|>create_event",  # two known names
        "mcp__get_weather",
        "functions.get_weather_now",
        "functions.get_weather:one",
        "get_weather:0:1",
        "get_weather:12345",
        "<|x|>",
        "",
        "functions.get_weather" + "<|x|>" * 200,
    ],
)
def test_nothing_else_is_guessed(name: str) -> None:
    assert trim(name, KNOWN) is None


TOOLS = {
    "get_weather": ToolPolicy("get_weather", None, "f"),
    "Math": ToolPolicy("Math", None, "f", container=Container("Math", "plugin", (ContainerFunction("Add"),))),
}


def call(tool: str, arguments: Document | JsonProblem | None = None) -> ToolCall:
    return ToolCall(tool, arguments or Document(b"{}", {}), "c", Conversation("k", Rung.HEADER))


def test_a_name_nobody_knows_is_answered_with_the_nearest() -> None:
    failure = explain_unknown_tool(call("get_wether"), TOOLS)

    assert (codes.UNKNOWN_TOOL, {"did_you_mean": "get_weather"}) == (failure.code, failure.details)


def test_a_function_joined_to_its_container_is_explained() -> None:
    assert codes.CONTAINER_INVOCATION == explain_unknown_tool(call("Math.Add"), TOOLS).code


def test_says_that_a_call_names_no_tool() -> None:
    failure = explain_unknown_tool(call(""), TOOLS)

    assert (codes.UNKNOWN_TOOL, "The call names no tool.") == (failure.code, failure.message)


def test_a_body_that_cannot_be_read_is_invalid_json() -> None:
    failure = explain_unknown_tool(call("", JsonProblem("EOF while parsing", 1, 5, True)), TOOLS)

    assert (codes.INVALID_ARGUMENTS, [codes.INVALID_JSON]) == (
        failure.code,
        [violation.code for violation in failure.violations],
    )


# --- names that differ in case and separators alone -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("getWeather", "get_weather"),
        ("get-weather", "get_weather"),
        ("GET.WEATHER", "get_weather"),
        ("get_weather", None),
        ("get_wether", None),
        ("", None),
        ("_", None),
        ("x" * 500, None),
    ],
)
def test_a_name_unfolds_to_the_one_known_name_with_the_same_letters(name: str, meant: str | None) -> None:
    assert meant == unfold(name, sorted(KNOWN))


def test_two_names_with_the_same_letters_are_no_answer() -> None:
    assert unfold("getweather", ["get_weather", "GetWeather"]) is None


def test_a_name_is_unfolded_only_if_the_tool_allows_it() -> None:
    off = ToolPolicy("get_weather", None, "f", repair=RepairPolicy(frozenset({RULE})))
    on = replace(off, repair=RepairPolicy(frozenset({FOLD_RULE})))

    assert find_known_name("getWeather", {"get_weather": off}) is None
    assert ("get_weather", FOLD_RULE) == find_known_name("getWeather", {"get_weather": on})
    assert ("get_weather", RULE) == find_known_name("functions.get_weather", {"get_weather": off})
    assert find_known_name("functions.get_weather", {"get_weather": on}) is None
