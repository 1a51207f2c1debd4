"""Reads the key `answer` of a policy, and checks it together with the other keys of its route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from proxy.config.files.secrets import reveal
from proxy.config.mistakes import DROP_ONE
from proxy.config.sections.top_level import NO_UPSTREAM
from proxy.config.sections.units import read_size
from proxy.core.json.jsontext import parse_pointer
from proxy.core.model.values import JsonValue
from proxy.extensions.answer.core.answer_rules import MAX_BYTES, AnswerRules

if TYPE_CHECKING:
    from proxy.plugin import Finding, WrittenRoute

SECRETS: Final = "secrets"


def read_answer_rules(written: JsonValue) -> AnswerRules | None:
    """The rules of a merged `answer`; None if it is switched off."""
    if not isinstance(written, dict):
        return None
    masks = written.get("mask", [])
    listed = [str(reveal(each)) for each in (masks if isinstance(masks, list) else [masks])]
    schema = str(reveal(written.get("schema", "")))
    return AnswerRules(
        read_size(written["max_bytes"]) if "max_bytes" in written else MAX_BYTES,
        reveal(written.get("on_large", "refuse")) == "cut",
        tuple(tuple(map(str, parse_pointer(each))) for each in listed if each != SECRETS),
        SECRETS in listed,
        "enforce" if schema == "enforce" else "report" if schema == "report" else "",
    )


def check_answer_route(route: WrittenRoute) -> Iterator[Finding]:
    """The key on a route whose requests have no answers of tools."""
    if "answer" not in route.entry:
        return
    if route.passes:
        yield (*route.at, "answer"), "`answer` has no effect on a passthrough route", DROP_ONE
    elif route.upstream == NO_UPSTREAM:
        yield (*route.at, "answer"), "`answer` has no effect: no tool answers here", DROP_ONE
