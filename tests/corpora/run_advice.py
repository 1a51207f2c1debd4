"""Follows each piece of advice of every refusal over the collected calls, alone, and judges what comes of it.

A rename, a move, a "did you mean", a value out of its list and one call for each item are applied as they are written;
advice is wrong where the schema then refuses the very place that was mended.
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
from proxy.core.explain.explain import list_violations
from proxy.core.json.jsontext import dumps, find_at_pointer, parse_pointer
from proxy.core.model import codes
from proxy.core.model.values import ABSENT, JsonValue, Pointer, Reject, Violation
from tests.corpora.calls import check_of, exact, judged, known_calls, rows
from tests.corpora.generate import damaged, random_value

_SEEDS: Final = 6

_RENAME: Final = re.compile(r"You sent '([^']+)'.*(?:rename it to '([^']+)'|if you meant '([^']+)', rename it)")
_MOVE: Final = re.compile(r"It was sent at '([^']+)': move it to '([^']+)'")
_MEANT: Final = re.compile(r"Did you mean \"([^\"]*)\"\?")
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
    return found


def follow(check: Check, sent: JsonValue, violation: Violation) -> Iterator[bool]:
    """Whether each thing that a violation's hint says to do ends the complaint about that place."""
    hint, path = violation.hint, violation.path
    if renamed := _RENAME.search(hint):
        source, name = parse_pointer(_pointer(renamed[1])), renamed[2] or renamed[3]
        yield _is_mended(check, _moved(sent, source, (*source[:-1], name)), (*source[:-1], name))
    if moved := _MOVE.search(hint):
        yield _is_mended(check, _moved(sent, parse_pointer(moved[1]), parse_pointer(moved[2])), parse_pointer(moved[2]))
    if (meant := _MEANT.search(hint)) and violation.code is codes.ENUM_MISMATCH:
        yield _is_mended(check, _set(sent, path, json.loads(f'"{meant[1]}"')), path)
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
    """Whether nothing is wrong any more at a place or below it."""
    return all(violation.path[: len(path)] != path for violation in list_violations(check, changed, ()))


def _takes_type(check: Check, changed: JsonValue, path: Pointer) -> bool:
    """Whether a place holds the type that it asks for, whatever else is wrong there."""
    found = list_violations(check, changed, ())
    return all(violation.path != path or violation.code is not codes.TYPE_MISMATCH for violation in found)


RUNS: Final = (advice, advice_on_generated)
