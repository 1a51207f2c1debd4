"""Compares a scenario's expectation with the result: each check yields the differences it found, in words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# `<1500000 x Lorem ipsum >` in a scenario means a text of 1500000 characters.
_REPEATED = re.compile(r"<(\d+) x (.+?)>")


def json_text(body: Any) -> str:
    """A body as written in a scenario: text unchanged (long ones written out), anything else as JSON."""
    if not isinstance(body, str):
        return json.dumps(body, ensure_ascii=False)
    return _REPEATED.sub(lambda found: (found[2] * int(found[1]))[: int(found[1])], body)


@dataclass(frozen=True)
class Answer:
    """The proxy's answer. Header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def differences(expect: Mapping[str, Any], answer: Answer) -> list[str]:
    """Returns what of the expectation the answer does not meet. A key this table does not know is a mistake of the
    scenario."""
    found: list[str] = []
    for key, wanted in expect.items():
        if key != "upstream":
            found += _CHECKS[key](wanted, answer)
    return found


def _status(wanted: int, answer: Answer) -> list[str]:
    return [] if wanted == answer.status else [f"status {answer.status}, not {wanted}"]


def _headers(wanted: Mapping[str, str], answer: Answer) -> list[str]:
    return missing(wanted, {name: value for name, value in answer.headers.items() if name in wanted}, "header ")


def _absent(names: list[str], answer: Answer) -> list[str]:
    return [f"header {name} is there: {answer.headers[name]}" for name in names if name in answer.headers]


def _body(wanted: Any, answer: Answer) -> list[str]:
    return [] if wanted == answer.json else [f"the body is not {wanted}"]


def _text(wanted: str, answer: Answer) -> list[str]:
    return [] if wanted == answer.text else [f"the body is not {wanted!r}"]


def _has(wanted: Any, answer: Answer) -> list[str]:
    return missing(wanted, answer.json)


def _keys(wanted: list[str], answer: Answer) -> list[str]:
    return [] if wanted == list(answer.json) else [f"the keys are {list(answer.json)}, not {wanted}"]


def _contains(wanted: list[str], answer: Answer) -> list[str]:
    said = answer.text + "\n".join(_strings(answer.json))
    return [f"{text!r} is not said" for text in wanted if text not in said]


def _never(unwanted: list[str], answer: Answer) -> list[str]:
    return [f"{text!r} is said" for text in unwanted if text in answer.text or text in str(answer.headers)]


def _lines(wanted: list[str], answer: Answer) -> list[str]:
    """The sentence has, in this order, lines that start so."""
    lines = iter(answer.json["content"].split("\n"))
    return [f"no line {start!r} at its place" for start in wanted if not any(line.startswith(start) for line in lines)]


def _max_content(limit: int, answer: Answer) -> list[str]:
    length = len(answer.json["content"])
    return [] if length <= limit else [f"the content has {length} characters, more than {limit}"]


_CHECKS: dict[str, Callable[[Any, Answer], list[str]]] = {
    "status": _status,
    "headers": _headers,
    "absent": _absent,
    "body": _body,
    "text": _text,
    "has": _has,
    "keys": _keys,
    "contains": _contains,
    "never": _never,
    "lines": _lines,
    "max_content": _max_content,
}


def missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Returns where `found` lacks what `wanted` names: objects may hold more keys, lists must be as long, the rest
    equal."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        lacks = [f"{path}/{key} is missing" for key in wanted if key not in found]
        both = [key for key in wanted if key in found]
        return lacks + [lack for key in both for lack in missing(wanted[key], found[key], f"{path}/{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [lack for index, pair in pairs for lack in missing(*pair, f"{path}/{index}")]
    same = wanted == found and type(wanted) is type(found)
    return [] if same else [f"{path or '/'}: {found!r}, not {wanted!r}"]


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _strings(item)]
