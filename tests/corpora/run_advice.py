"""Follows each piece of advice of every rejection over the collected calls, one at a time, and validates the result.

The advice is applied as it is written: a rename, a move, a "did you mean", a value out of its list, leaving a field out
and one call for each item. Advice is wrong if the schema then refuses the very place that was changed.

The text as a whole is checked as well. An example that is called valid is valid, and differs from the sent call. A
shape holds each required field. Fields that Accepts requires are required. No field is called unknown that some schema
of its place declares. No line appears twice.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from proxy.core.check.validation import Check, SchemaError
from proxy.core.contract.policy import ToolPolicy
from proxy.core.envelope.feedback import write_feedback
from proxy.core.explain.advice import add_advice
from proxy.core.explain.explain import list_violations
from proxy.core.explain.places import find_nodes_at, find_possible_nodes, is_taken_at
from proxy.core.explain.signature import write_signature
from proxy.core.json.jsontext import are_equal, dumps, find_at_pointer, parse, parse_pointer
from proxy.core.model import codes
from proxy.core.model.values import (
    ABSENT,
    Conversation,
    Document,
    Failure,
    JsonValue,
    Pointer,
    Reject,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)
from proxy.core.rules.facts import list_required
from tests.corpora.calls import check_of, exact, judged, known_calls, rows
from tests.corpora.generate import damaged, random_value

_SEEDS: Final = 6

_RENAME: Final = re.compile(
    r"You sent '([^']+)'.*(?:rename it to '([^']+)'|if (?:you meant|it holds) '([^']+)', rename it(?! and))"
)
_MOVE: Final = re.compile(r"It was sent at '([^']+)': move it to '([^']+)'")
_BELONGS: Final = re.compile(r"It (?:may )?belongs? to ((?:'[^']+'(?: or )?)+): move it there")
_MEANT: Final = re.compile(r"Did you mean '([^']*)'\?")
_UNKNOWN: Final = re.compile(r"You sent ((?:'[^']+'(?:, )?)+): (?:if|rename)")
_CONTENT: Final = re.compile(r"'([^']+)'(?:: send| only wraps the arguments, send) its content itself as the arguments")


def advice_on_generated(data: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Every piece of advice on generated calls of real tools with the mistakes that models make."""
    found: Counter[str] = Counter({"held": 0, "wrong": 0})
    for number, row in enumerate(rows(data / "mcp-tools/tools.jsonl.gz")):
        with suppress(SchemaError):
            check = check_of(row["inputSchema"])
            for seed in range(_SEEDS):
                chance = Random(number * _SEEDS + seed)
                text = dumps(damaged(random_value(check, chance), chance))
                found.update(_followed(row["id"], row["inputSchema"], "tool", text))
    yield "advice on generated calls, followed piece by piece", found


def advice(data: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Every piece of advice on the calls whose right arguments are known, at `off`, where most is refused."""
    found: Counter[str] = Counter({"held": 0, "wrong": 0})
    for row in known_calls(data):
        raw = row["raw_arguments"] if "raw_arguments" in row else row["sent"]
        schema = row["json_schema"] if "json_schema" in row else row["schema"]
        text = raw if isinstance(raw, str) else json.dumps(raw)
        found.update(_followed(row["id"], schema, row["tool"], text))
    yield "advice, followed piece by piece", found


def _followed(identity: str, schema: JsonValue, tool: str, text: str | bytes) -> Counter[str]:
    decision = judged(schema, text, "off", tool=tool)
    found: Counter[str] = Counter({"held": 0, "wrong": 0})
    if isinstance(decision, Reject) and decision.failure.sent is not ABSENT:
        for violation in decision.failure.violations:
            for holds in follow(check_of(schema), decision.failure.sent, violation):
                found["held" if holds else "wrong"] += 1
                if not holds:
                    print("WRONG", identity, violation.path, violation.hint, text[:200])
        for lack in find_untrue(check_of(schema), tool, decision.failure):
            found["wrong"] += 1
            print("WRONG", identity, lack, text[:200])
        found["held"] += 1
    return found


def find_untrue(check: Check, tool: str, failure: Failure) -> Iterator[str]:
    """Yields each untrue statement in the text of a rejected call."""
    call = ToolCall(tool, Document(b"", failure.sent), "call", Conversation("c", Rung.HEADER))
    result = add_advice(ToolResult(call, failure), ToolPolicy(tool, check, "t"))
    text = write_feedback(result)
    if len(text) > result.limits.max_chars:
        yield f"the text has {len(text)} characters"
    if result.example:
        example = parse(result.example.encode())
        if are_equal(example, failure.sent):
            yield "the example is what was sent"
        if result.example_complete and not check.accepts(example):
            yield f"the example is not valid: {result.example}"
        if isinstance(example, dict) and (lacking := list_required([check.root]) - example.keys()):
            yield f"the shape lacks {lacking}"
    missing = {violation.path[0] for violation in failure.violations if len(violation.path) == 1}
    for size in result.accepts:
        for name in check.root.properties if size.startswith("{") else ():
            is_wanted = f"{name}: " in size and f"{name}?: " not in size
            is_asked = name in list_required(check.root.always) | missing
            if is_wanted and not is_asked and not any(f"{name}: " in other for other in _texts_below(check, name)):
                yield f"Accepts requires {name}: {size[:200]}"
    lines = [line for line in text.split("\n") if line.startswith(("•", "The tool's own words"))]
    if len(lines) != len(set(lines)):
        yield "a line is told twice"


def _texts_below(check: Check, name: str) -> Iterator[str]:
    """The signatures of the other properties, in which the same name may be required."""
    yield from (write_signature(node, 8) for key, node in check.root.properties.items() if key != name)
    yield write_signature(check.root.properties[name], 8)


def follow(check: Check, sent: JsonValue, violation: Violation) -> Iterator[bool]:
    """Returns whether each thing that a violation's hint says to do ends the complaint about that place."""
    hint, path = violation.hint, violation.path
    if renamed := _RENAME.search(hint):
        source, name = parse_pointer(_pointer(renamed[1])), renamed[2] or renamed[3]
        yield _is_mended(check, _moved(sent, source, (*source[:-1], name)), (*source[:-1], name))
    if moved := _MOVE.search(hint):
        yield _is_mended(check, _moved(sent, parse_pointer(moved[1]), parse_pointer(moved[2])), parse_pointer(moved[2]))
    if belongs := _BELONGS.search(hint):
        value = find_at_pointer(sent, path)
        for target in re.findall(r"'([^']+)'", belongs[1]):
            yield is_taken_at(check, parse_pointer(target), value)
    if unknown := _UNKNOWN.search(hint):
        for name in re.findall(r"'([^']+)'", unknown[1]):
            yield not find_possible_nodes(check, parse_pointer(name))
    if "or leave it out" in hint and isinstance(path[-1], str) and violation.code is not codes.UNKNOWN_FIELD:
        yield all(path[-1] not in node.required for node in find_nodes_at(check, path[:-1]))
    if hint == "Leave it out." and violation.code is codes.UNKNOWN_FIELD:
        yield not find_possible_nodes(check, path)
    if (meant := _MEANT.search(hint)) and violation.code is codes.ENUM_MISMATCH:
        yield _is_mended(check, _set(sent, path, meant[1]), path)
    value = None if violation.code is codes.REQUIRED_MISSING else find_at_pointer(sent, path)
    if "one value, not a list" in hint and isinstance(value, list) and len(value) == 1:
        yield _is_mended(check, _set(sent, path, value[0]), path)
    if "make one call for each" in hint and violation.code is codes.TYPE_MISMATCH and isinstance(value, list):
        yield len(path) < 2 and all(_takes_type(check, _set(sent, path, item), path) for item in value)
    if content := _CONTENT.search(hint):
        inner = find_at_pointer(sent, (content[1],))
        yield isinstance(inner, dict) and all(
            v.code is not codes.UNKNOWN_FIELD for v in list_violations(check, inner, ())
        )


def _pointer(written: str) -> str:
    return written if written.startswith("/") else f"/{written}"


def _moved(sent: JsonValue, source: Pointer, target: Pointer) -> JsonValue:
    changed: Any = exact(sent)
    holder = find_at_pointer(changed, source[:-1])
    assert isinstance(holder, dict)
    return _set(changed, target, holder.pop(str(source[-1])))


def _set(sent: JsonValue, path: Pointer, value: JsonValue) -> JsonValue:
    if not path:
        return value
    changed: Any = exact(sent)
    holder: Any = find_at_pointer(changed, path[:-1])
    holder[int(path[-1]) if isinstance(holder, list) else path[-1]] = value
    return changed


def _is_mended(check: Check, changed: JsonValue, path: Pointer) -> bool:
    """Returns whether nothing is wrong any more at a place or below it."""
    return all(violation.path[: len(path)] != path for violation in list_violations(check, changed, ()))


def _takes_type(check: Check, changed: JsonValue, path: Pointer) -> bool:
    """Returns whether a place holds the type that it asks for, whatever else is wrong there."""
    found = list_violations(check, changed, ())
    return all(violation.path != path or violation.code is not codes.TYPE_MISMATCH for violation in found)


RUNS: Final = (advice, advice_on_generated)
