"""Search in a catalogue: what is found first, what a model reads of it, and pages of a container."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.contract.container import PAGE, cut_pages, make_expansion
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Container, ContainerFunction
from proxy.extensions.mcp.core.tool_search import ToolIndex, make_description, make_search_answer, read_words

TOOLS = (
    ContainerFunction("createIssue", "Opens a new issue in a repository."),
    ContainerFunction("list_issues", "Lists the issues of a repository, newest first."),
    ContainerFunction("merge_pull_request", "Merges a pull request."),
    ContainerFunction("send_mail", "Sends a message.", {"type": "object", "properties": {"recipient": {}}}),
    ContainerFunction("get_weather", "Tells the weather of a place."),
)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("create an issue", "createIssue"),
        ("list issues", "list_issues"),
        ("who is the recipient", "send_mail"),
        ("weather", "get_weather"),
        ("MERGE_PULL_REQUEST", "merge_pull_request"),
        ("pull requests to merge", "merge_pull_request"),
    ],
)
def test_lists_the_best_match_first(query: str, first: str) -> None:
    assert first == ToolIndex(TOOLS).search(query, 3)[0].name


def test_finds_nothing_without_a_match() -> None:
    answer: Any = make_search_answer(ToolIndex(TOOLS), len(TOOLS), {"query": "the zebra"})
    assert (False, [], "No tool of 5 fits. Try other words.") == (answer["success"], answer["tools"], answer["message"])


def test_words_are_the_same_however_names_are_written() -> None:
    assert ["create", "issue"] == read_words("createIssue") == read_words("create_issues") == read_words("Create-Issue")


def test_a_tool_is_described_with_its_parameters_and_a_near_name_is_suggested() -> None:
    found: Any = make_description(TOOLS, {"name": "send_mail"})
    assert {"type": "object", "properties": {"recipient": {}}} == found["functions"][0]["parameters"]
    other: Any = make_description(TOOLS, {"name": "send_mial"})
    assert "There is no tool of this name. Did you mean 'send_mail'?" == other["message"]


def test_a_large_catalogue_has_pages_and_each_function_is_on_one() -> None:
    functions = tuple(ContainerFunction(f"tool_{number}", "x" * 900) for number in range(100))
    container = Container("all", "mcp", functions, expand="proxy")
    seen: list[str] = []
    for number in range(1, len(cut_pages(functions)) + 1):
        page: Any = make_expansion(container, sent={"page": number})
        assert len(dumps(page)) < PAGE * 1.2
        seen += [function["name"] for function in page["functions"]]
    assert [function.name for function in functions] == seen
    first: Any = make_expansion(container)
    assert f"page 1 of {len(cut_pages(functions))}" in first["message"]
    assert 'The next page: all with {"page": 2}' in first["message"]
