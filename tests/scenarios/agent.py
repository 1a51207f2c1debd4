"""A scripted agent that corrects its calls by reading only the answer's text: no schema, no error objects.

It means a model at its most literal. It knows the call it made, the user's wish (for each thing the user said, the ways
to write it down) and a dozen plain rules for reading a sentence. A fact that it cannot read there it cannot know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Wish = Mapping[str, list[Any]]

_BULLET = re.compile(r"^• (\S+) \((VAL-\d{3})\): (.*)$")


@dataclass(frozen=True)
class Call:
    """A call of the agent: a tool's name and the text of its arguments."""

    tool: str
    text: str


@dataclass
class Told:
    """One error in the text."""

    path: str
    code: str
    said: str
    expected: str = ""


def errors(content: str) -> list[Told]:
    """The bullets of a sentence with their Expected lines."""
    found: list[Told] = []
    for line in content.split("\n"):
        if bullet := _BULLET.match(line):
            found.append(Told(bullet[1], bullet[2], bullet[3]))
        elif line.startswith("  Expected: ") and found:
            found[-1].expected = line.removeprefix("  Expected: ")
    return found


def next_calls(call: Call, content: str, wish: Wish) -> list[Call]:
    """The calls to make after a refusal: one, or two where the text asks for two."""
    if meant := re.search(r"^Did you mean '([^']+)'\? Call it by exactly this name\.", content, re.MULTILINE):
        return [Call(meant[1], call.text)]
    if container := re.search(r"First call '([^']+)' with NO arguments", content):
        inner = re.search(r"call '([^']+)' with (\{.*\})\.$", content, re.MULTILINE)
        own = re.search(r"^Call '([^']+)' by its own name\.", content, re.MULTILINE)
        if own:
            return [Call(own[1], call.text)]
        assert inner is not None, content
        return [Call(container[1], "{}"), Call(inner[1], inner[2])]
    return [Call(call.tool, json.dumps(_mended(call, content, wish), ensure_ascii=False))]


def _mended(call: Call, content: str, wish: Wish) -> Any:
    found = errors(content)
    if found[0].code == "VAL-004" or found[0].path == "arguments":
        return _from_signature(content, wish)
    arguments = json.loads(call.text)
    wrapped = next((match for one in found if (match := re.search(r"'([^']+)'(?:: send| only wraps)", one.said))), None)
    if wrapped:
        return arguments[wrapped[1]]
    for one in sorted(found, key=lambda error: error.code == "VAL-005"):
        _mend(arguments, one, wish)
    return arguments


def _mend(arguments: Any, error: Told, wish: Wish) -> None:
    """Changes the arguments as one bullet asks."""
    *parents, last = error.path.strip("/").split("/")
    place = arguments
    for step in parents:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if renamed := re.search(
        r"You sent '/?([^']+)'.*(?:rename it to '([^']+)'|if you meant '([^']+)', rename it)", error.said
    ):
        place[renamed[2] or renamed[3]] = place.pop(renamed[1])
    elif error.code == "VAL-005":
        place.pop(last, None)
    elif meant := re.search(r"Did you mean '([^']+)'\?", error.said):
        place[last] = meant[1]
    else:
        place[last] = _wished(last, error.expected, wish)


def _from_signature(content: str, wish: Wish) -> dict[str, Any]:
    """New arguments made of the tool's Accepts line: every field the user said something about."""
    accepts = re.search(r"^Accepts: \{(.*)\}$", content, re.MULTILINE)
    assert accepts is not None, content
    listed = re.findall(r"(?:^|, )(\w+)\??: ((?:\([^)]*\)|[^,(])*)", accepts[1])
    return {name: _wished(name, expected, wish) for name, expected in listed if name in wish}


def _wished(name: str, expected: str, wish: Wish) -> Any:
    """Of the ways in which the user's wish can be written, the first that the text allows."""
    return next(value for value in wish[name] if _allowed(value, expected))


def _allowed(value: Any, expected: str) -> bool:
    if expected.startswith("one of "):
        return repr(value) in expected
    checks = {
        r"^string": isinstance(value, str),
        r"^number": isinstance(value, int | float),
        r"^integer": isinstance(value, int),
        r"^(array|an array|\w+\[\])": isinstance(value, list),
        r"^boolean": isinstance(value, bool),
    }
    if not all(holds for pattern, holds in checks.items() if re.search(pattern, expected)):
        return False
    return all(_within(value, word, bound) for word, bound in re.findall(_BOUND, expected))


_BOUND = r"(at least|at most|max length|min length|format|pattern) ([^,)]+)"


def _within(value: Any, word: str, bound: str) -> bool:
    size = value if isinstance(value, int | float) else len(value)
    match word:
        case "at least" | "min length":
            return bool(size >= float(bound.split()[0]))
        case "at most" | "max length":
            return bool(size <= float(bound.split()[0]))
        case "format":
            return bool(re.fullmatch(_FORMATS[bound], value))
        case "pattern":
            return bool(re.search(bound, value))
        case _:
            raise AssertionError(f"the agent cannot read {word!r}")


_FORMATS = {"date": r"\d{4}-\d\d-\d\d", "email": r"\S+@\S+"}
