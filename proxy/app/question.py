"""What the operator asks of a page, and what a page answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxy.core.jsontext import dumps
from proxy.core.model import JsonValue

_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Question:
    """What the operator asks: the rest of the path behind a page's name, the query, and the body of a POST."""

    method: str
    path: str
    rest: str
    query: str
    body: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered."""

    body: bytes
    status: int = 200
    content_type: str = _JSON


def json_page(value: JsonValue, status: int = 200) -> Page:
    """A value as an answer."""
    return Page(dumps(value) + b"\n", status)


def unfit(why: str, status: int = 400) -> Page:
    """What is wrong with a question."""
    return json_page({"error": why}, status)
