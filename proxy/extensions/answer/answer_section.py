"""Reads the key `answer` of a policy, and checks it together with the other keys of its route."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from proxy.config.keys.kinds import (
    SAME_OWNER,
    SIZE,
    ConfigKey,
    choice,
    either,
    list_of,
    mapping,
    name_kind,
    number,
    off_or,
    text,
)
from proxy.core.json.jsontext import parse_pointer
from proxy.core.model.values import JsonValue
from proxy.extensions.answer.core.answer_rules import AnswerRules
from proxy.plugin import DROP_ONE, NO_UPSTREAM, reveal

if TYPE_CHECKING:
    from proxy.plugin import Finding, WrittenRoute

SECRETS: Final = "secrets"
_POINTER: Final = text(
    pattern="^(secrets|(/([^~]|~[01])*)+)$", x_expects="secrets, or a JSON Pointer such as /user/email"
)


def _read_masks(written: JsonValue) -> dict[str, Any]:
    listed = [str(reveal(each)) for each in (written if isinstance(written, list) else [written])]
    pointers = tuple(tuple(map(str, parse_pointer(each))) for each in listed if each != SECRETS)
    return {"pointers": pointers, "secrets": SECRETS in listed}


_RULES: Final = mapping(
    AnswerRules,
    ConfigKey(
        "max_bytes",
        either(
            number(minimum=2000),
            text(pattern="^(([2-9]|[1-9][0-9]{1,4})(kB|KiB)|[1-9][0-9]?(MB|MiB))$"),
            read=SIZE.read,
            x_expects="a size from 2KiB to 99MiB, such as 64KiB",
        ),
        "The longest answer that a client gets, in bytes of its decoded body or MCP message; no more of an answer is "
        "read.",
        default=SIZE.write(AnswerRules().max_bytes),
    ),
    ConfigKey(
        "on_large",
        replace(choice("refuse", "cut"), read=lambda written: reveal(written) == "cut"),
        "The treatment of a longer answer: `refuse` tells the model how to ask for less. `cut` sends only its "
        "beginning and says what is missing.",
        default="refuse",
        field="cuts",
    ),
    ConfigKey(
        "mask",
        either(
            choice(SECRETS, x_expects=SECRETS),
            list_of(_POINTER, minItems=1),
            read=_read_masks,
            x_expects="secrets, or a list of JSON Pointers",
        ),
        "Places that become `***`: JSON Pointers (a step `*` means every item or member), and `secrets` for the "
        "built-in patterns.",
        field=SAME_OWNER,
    ),
    ConfigKey(
        "schema",
        choice("report", "enforce"),
        "Answers that break their schema (`response_schema`, or the `outputSchema` that an MCP server lists): counted "
        "(`report`), or withheld (`enforce`). `enforce` also withholds answers that cannot be validated.",
        default=None,
    ),
)
ANSWER: Final = name_kind(
    "answer",
    "Answer",
    off_or(_RULES, "off, or a mapping of max_bytes, on_large, mask and schema"),
    "Bounds, masks and validates what tools answer (docs/answers.md).",
)
_KEYS: Final = mapping(None, ConfigKey("answer", ANSWER))
KEYS: Final = dict.fromkeys(("defaults", "tool", "route"), _KEYS)


def check_answer_route(route: WrittenRoute) -> Iterator[Finding]:
    """The key on a route whose requests have no answers of tools."""
    if "answer" not in route.entry:
        return
    if route.passes:
        yield (*route.at, "answer"), "`answer` has no effect on a passthrough route", DROP_ONE
    elif route.upstream == NO_UPSTREAM:
        yield (*route.at, "answer"), "`answer` has no effect: no tool answers here", DROP_ONE
