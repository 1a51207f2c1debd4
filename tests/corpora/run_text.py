"""Runs the strict reader and text repair over the collected texts and prints what each level makes of them.

`run_all` exits 1 if a text that must be refused is read, or one that must be read is refused. It also exits 1 if a text
is read with another meaning than every project gives it. If the projects themselves disagree, `DIFFERING` says why ours
is another.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proxy.core.json.jsontext import TextLimits, are_equal, parse, read_document
from proxy.core.model.values import Document, JsonProblem, JsonValue
from proxy.core.rules.rules import TEXT_RULES, select_rules
from tests.corpora.calls import exact, rows

Found = Counter[str]

# The two files of the accepted ones that hold a duplicate key: refused by design (docs/repair.md).
DUPLICATE_KEYS: Final = frozenset({"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"})

# Texts that text repair reads although a strict parser must not, at each level.
READ_AT_STANDARD: Final = frozenset(
    [
        "n_string_unescaped_ctrl_char.json",
        "n_string_unescaped_newline.json",
        "n_string_unescaped_tab.json",
        "n_structure_double_array.json",
    ]
)
READ_AT_LENIENT: Final = READ_AT_STANDARD | {
    "n_array_extra_close.json",
    "n_array_extra_comma.json",
    "n_array_number_and_comma.json",
    "n_object_key_with_single_quotes.json",
    "n_object_single_quote.json",
    "n_object_trailing_comma.json",
    "n_object_unquoted_key.json",
    "n_string_single_quote.json",
    "n_structure_array_with_extra_array_close.json",
    "n_structure_capitalized_True.json",
    "n_structure_object_followed_by_closing_object.json",
}

# id -> why we read a text otherwise than the project it comes from
DIFFERING: Final = {
    "json_repair-193": "drops a raw line break inside a key; we keep what was sent, escaped",
    "jsonrepair-627": "refuses a raw NUL in a string; we escape it like every control character",
    "jsonrepair-628": "refuses a raw control character in a string; we escape it",
    "baml-720": "turns the numbers into texts for a type of its own; reading text changes no type",
    "baml-768": "renames keys by aliases of a type of its own",
    "baml-847": "renames keys by aliases of a type of its own",
}


def texts_read(data: Path, level: str) -> dict[str, Document | JsonProblem]:
    """Returns what is made of each file of JSONTestSuite at a level, by the file's name."""
    classes = select_rules(level) & TEXT_RULES
    return {
        row["name"]: read_document(base64.b64decode(row["base64"]), TextLimits(), classes)
        for row in rows(data / "json-parsing/nst_test_parsing.jsonl.gz")
    }


def parsing(data: Path) -> Iterator[tuple[str, Found]]:
    """JSONTestSuite: y_ is read, n_ is refused with a place, i_ is one or the other."""
    allowed = {"off": frozenset[str](), "standard": READ_AT_STANDARD, "lenient": READ_AT_LENIENT}
    for level, by_repair in allowed.items():
        found: Found = Counter()
        for name, made in texts_read(data, level).items():
            found[_verdict(name, made, by_repair)] += 1
        yield f"json-parsing at {level}", found


def _verdict(name: str, made: Document | JsonProblem, by_repair: frozenset[str]) -> str:
    if isinstance(made, JsonProblem):
        placed = made.line >= 1 and made.column >= 1
        if name in by_repair or (name[0] == "y" and name not in DUPLICATE_KEYS) or not placed:
            print("WRONG", name, made)
            return "wrong"
        return f"{name[0]}_ refused"
    if name in DUPLICATE_KEYS or (name[0] == "n" and name not in by_repair):
        print("WRONG", name, made.repairs)
        return "wrong"
    return f"{name[0]}_ read" + (" by text repair" if made.repairs else "")


def malformed(data: Path) -> Iterator[tuple[str, Found]]:
    """Malformed JSON as models write it: right where the project that collected it says the same, never wrong."""
    for level in ("off", "standard", "lenient"):
        classes = select_rules(level) & TEXT_RULES
        found: Found = Counter()
        for row in rows(data / "malformed-json/pairs.jsonl.gz"):
            made = read_document(row["text"].encode("utf-8", "surrogatepass"), TextLimits(), classes)
            found[_compared(row, made)] += 1
        yield f"malformed-json at {level}", found


def _compared(row: dict[str, JsonValue], made: Document | JsonProblem) -> str:
    if isinstance(made, JsonProblem):
        return "refused, valid JSON" if row["already_valid"] else "refused"
    if row["already_valid"]:
        same = not made.repairs and are_equal(made.value, parse(row["text"].encode()))
        return "valid, as it is" if same else "wrong"
    if "expected" in row and are_equal(made.value, exact(row["expected"])):
        return "right"
    if row["id"] in DIFFERING:
        return "read differently, with reason"
    print(
        "WRONG",
        row["id"],
        json.dumps(row["text"])[:300],
        "->",
        made.text[:200],
        "expected",
        json.dumps(row.get("expected"))[:200],
    )
    return "wrong"


RUNS: Final = (parsing, malformed)
