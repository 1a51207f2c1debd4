"""Search in a catalogue of tools, for models that cannot be shown all of it: BM25 over names, descriptions, parameters.

ToolIndex.search    the tools that fit a question, best first (Robertson and Zaragoza, "The Probabilistic Relevance
                    Framework: BM25 and Beyond", 2009)
make_search_answer, make_description    the answers of `search_tools` and `describe_tool`
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from proxy.core.contract.container import SEARCH, SEARCHED, show_function
from proxy.core.contract.listed_tool import compile_listed
from proxy.core.contract.policy import CallCap, ToolPolicy
from proxy.core.model.values import Container, ContainerFunction, JsonValue
from proxy.core.schema.formats import USUAL
from proxy.plugin import find_nearest

DESCRIBE: Final = "describe_tool"
# The most tools that a search gives, and the longest description among them.
MOST_FOUND: Final = 20
_DESCRIBED: Final = 200

SEARCH_TOOL: Final[dict[str, JsonValue]] = {
    "name": SEARCH,
    "description": "Finds tools by what they do. Gives names and descriptions, the best first.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "description": "The task of the tool, in a few words."},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "description": "How many (10)."},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True},
}
DESCRIBE_TOOL: Final[dict[str, JsonValue]] = {
    "name": DESCRIBE,
    "description": "Tells what a tool does and which arguments it takes (JSON Schema). Call the tool by its own name.",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1, "description": "The tool's name."}},
        "required": ["name"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True},
}

# The usual constants of BM25.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
# A word of the name counts more than one of the description.
_OF_NAME: Final = 3
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
_STOP: Final = frozenset(
    ["a", "an", "and", "as", "by", "for", "from", "in", "is", "it", "of", "on", "or", "the", "to", "with"]
)


def read_words(text: str) -> list[str]:
    """The words of a text in lower case, `createIssue` and `create_issue` alike; a plural counts as its singular."""
    return [_singular(word) for found in _WORD.findall(text) if (word := found.lower()) not in _STOP]


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


class ToolIndex:
    """An index of tools."""

    def __init__(self, functions: Sequence[ContainerFunction]) -> None:
        self._functions = functions
        self._counts = [_count_words(function) for function in functions]
        self._lengths = [sum(count.values()) for count in self._counts]
        self._mean = sum(self._lengths) / len(self._lengths) if self._lengths else 1.0
        self._spread: Counter[str] = Counter()
        for count in self._counts:
            self._spread.update(count.keys())

    def search(self, query: str, limit: int) -> list[ContainerFunction]:
        """The tools that fit best; of equal ones the first listed. An exact name comes first."""
        words = list(dict.fromkeys(read_words(query)))
        named = query.strip().lower()
        scored = [
            (function.name.lower() == named, self._score(index, words), -index)
            for index, function in enumerate(self._functions)
        ]
        best = sorted((entry for entry in scored if entry[0] or entry[1] > 0), reverse=True)[:limit]
        return [self._functions[-index] for _, _, index in best]

    def _score(self, index: int, words: list[str]) -> float:
        count, total = self._counts[index], 0.0
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * self._lengths[index] / (self._mean or 1.0))
        for word in words:
            if times := count[word]:
                rarity = math.log(1 + (len(self._counts) - self._spread[word] + 0.5) / (self._spread[word] + 0.5))
                total += rarity * times * (_SATURATION + 1) / (times + norm)
        return total


def _count_words(function: ContainerFunction) -> Counter[str]:
    count: Counter[str] = Counter()
    for word in read_words(function.name):
        count[word] += _OF_NAME
    count.update(read_words(function.description))
    properties = (function.schema or {}).get("properties")
    if isinstance(properties, dict):
        count.update(word for name in properties for word in read_words(name))
    return count


# --- the tools --------------------------------------------------------------------------------------------------------
def list_own_tools(container: Container | None, taken: Collection[str]) -> tuple[str, ...]:
    """The proxy's own tools that are listed beside a container with many functions. A server's tools of the same names
    replace them."""
    if container is None or len(container.functions) < SEARCHED:
        return ()
    return tuple(name for name in (SEARCH, DESCRIBE) if name not in taken and name != container.name)


def make_own_policy(name: str, template: ToolPolicy, container: Container) -> ToolPolicy:
    """The policy of one of these tools: judged like any other, and answered here."""
    functions = container.functions
    schema, answer = DESCRIBE_TOOL["inputSchema"], partial(make_description, functions)
    if name == SEARCH:
        schema, answer = SEARCH_TOOL["inputSchema"], partial(make_search_answer, ToolIndex(functions), len(functions))
    template = replace(template, cap=CallCap(), added={})
    return replace(template, tool=name, check=compile_listed(schema, USUAL), answers_here=answer)


# --- answers ----------------------------------------------------------------------------------------------------------
def make_search_answer(index: ToolIndex, known: int, arguments: JsonValue) -> JsonValue:
    """The answer of `search_tools`; `known` is the number of tools."""
    members = arguments if isinstance(arguments, dict) else {}
    query, limit = members.get("query"), members.get("limit", 10)
    found = index.search(query if isinstance(query, str) else "", limit if isinstance(limit, int) else 10)
    then = f"Call `{DESCRIBE}` for the arguments of one, then the tool itself by its name."
    message = f"{len(found)} of {known} tools. {then}" if found else f"No tool of {known} fits. Try other words."
    tools: JsonValue = [{"name": each.name, "description": _first(each.description)} for each in found]
    return {"success": bool(found), "message": message, "tools": tools}


def make_description(functions: Sequence[ContainerFunction], arguments: JsonValue) -> JsonValue:
    """The answer of `describe_tool`."""
    value = arguments.get("name") if isinstance(arguments, dict) else None
    name = value if isinstance(value, str) else ""
    found = next((function for function in functions if function.name == name), None)
    if found is None:
        near = find_nearest(name, [function.name for function in functions], slip=True)
        hint = f"Did you mean '{near}'?" if near else f"`{SEARCH}` finds tools."
        return {"success": False, "message": f"There is no tool of this name. {hint}"}
    return {"success": True, "functions": [show_function(found)]}


def _first(description: str) -> str:
    text = " ".join(description.split())
    return text if len(text) <= _DESCRIBED else text[: _DESCRIBED - 1].rstrip() + "…"
