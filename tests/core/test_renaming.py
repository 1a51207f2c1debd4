"""A repair reads no meaning out of a name: a call under other names has the same decision, rules, places and arguments.
The tests use a sample of the collected calls; `make corpora` runs all of them."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from proxy.core.rules.vocabulary import PROTOCOL_WORDS, READING_VERBS
from tests.corpora.renaming import (
    Case,
    UnrenamableError,
    make_renaming,
    rename_call,
    rename_case,
    rename_schema,
    split_parts,
)
from tests.corpora.run_renaming import SETS, compare_all, is_renamed_enough
from tests.tables import each_row

DATA: Final = Path(__file__).parent.parent / "data"
# Every which call of a set belongs to the sample.
STEPS: Final = {"known calls": 4, "model_calls": 1, "bfcl": 5, "mcp-tools": 3}


@pytest.mark.parametrize("name", SETS)
def test_decides_the_same_under_other_names(name: str) -> None:
    found, lines = compare_all(islice(SETS[name](DATA), 0, None, STEPS[name]))
    assert lines == []
    assert found.total() > 40
    assert is_renamed_enough(found)


def renamed(tool: str, schema: Any, sent: str, seed: int = 1) -> Case:
    return rename_case(Case("a case", tool, schema, sent), seed)[0]


def declare(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


@each_row(
    ("name", "parts"),
    [
        ("start_date", ("start", "date")),
        ("HTTPServer", ("http", "server")),
        ("userIDs", ("user", "i", "ds")),
        ("s3Bucket", ("s", "3", "bucket")),
        ("m_1_12", ("m", "1", "12")),
        ("X-Lim", ("x", "lim")),
        ("getURLPath", ("get", "url", "path")),
        ("-asc", ("asc",)),
    ],
)
def test_splits_a_name_into_parts(name: str, parts: tuple[str, ...]) -> None:
    assert split_parts(name) == parts


@each_row("name", ["startDate", "start_date", "START-DATE", "HTTPServer", "s3Bucket", "x.y_Z", "-asc", "a  b", "URL"])
def test_keeps_the_shape_of_a_name(name: str) -> None:
    made = next(iter(renamed("tool", declare(name), "{}").schema["properties"]))
    assert [not part.isdigit() and len(part) >= 3 for part in split_parts(made)] == [
        not part.isdigit() for part in split_parts(name)
    ]
    assert shape(made) == shape(name)
    assert set(split_parts(made)).isdisjoint(part for part in split_parts(name) if not part.isdigit())


def shape(name: str) -> str:
    """The name with one `a`, `A` or `Aa` for each part."""
    marks = {part: "a" if part.islower() else "A" for part in name}
    text = "".join(marks[each] if each.isalpha() else each for each in name)
    while any(twice in text for twice in ("aa", "AA")):
        text = text.replace("aa", "a").replace("AA", "A")
    return text


def test_renames_every_place_of_a_name() -> None:
    schema = {
        "type": "object",
        "description": "A date.",
        "properties": {
            "startDate": {"$ref": "#/$defs/Day", "title": "Start"},
            "kind": {"const": "startDate"},
            "name": {"type": "string"},
        },
        "required": ["startDate"],
        "dependentRequired": {"startDate": ["kind"]},
        "discriminator": {"propertyName": "kind", "mapping": {"a": "#/$defs/Day"}},
        "$defs": {"Day": {"type": "string", "examples": ["2026-01-01"]}},
    }
    case = renamed("get_date", schema, '{"start_date": "\\u0041", "kind": "startDate", "name": 1.0}')
    made: Any = case.schema
    start, kind, name = made["properties"]
    assert (made["required"], made["dependentRequired"], name) == ([start], {start: [kind]}, "name")
    (day,) = made["$defs"]
    assert made["properties"][start]["$ref"] == f"#/$defs/{day}"
    assert made["discriminator"] == {"propertyName": kind, "mapping": {"a": f"#/$defs/{day}"}}
    assert made["properties"][kind] == {"const": "startDate"}
    assert made["description"] != "A date."
    assert made["$defs"][day]["examples"] != ["2026-01-01"]
    sent = next(iter(json.loads(case.sent)))
    assert split_parts(sent) == split_parts(start)
    assert case.sent == f'{{"{sent}": "\\u0041", "{kind}": "startDate", "name": 1.0}}'
    assert split_parts(case.tool) == ("get", split_parts(start)[1])


@each_row(
    ("sent", "expected"),
    [
        ('{"city": "city"}', '{"NEW": "city"}'),
        ("{city: 'city'}", "{NEW: 'city'}"),
        ("{'city': 1,}", "{'NEW': 1,}"),
        ("{“city”: 1}", "{“NEW”: 1}"),
        ('{\\"city\\": \\"x\\"}', '{\\"NEW\\": \\"x\\"}'),
        ('"{\\"city\\": 1}"', '"{\\"NEW\\": 1}"'),
        ('{"args": "{\\"city\\": \\"é\\"}"}', '{"args": "{\\"NEW\\": \\"é\\"}"}'),
        (
            '{"name": "functions.go_out", "arguments": {"city": 1}}',
            '{"name": "functions.TOOL", "arguments": {"NEW": 1}}',
        ),
        ('{"go_out": {"city": 1}}', '{"TOOL": {"NEW": 1}}'),
        ("<parameter=city>x</parameter>", "<parameter=NEW>x</parameter>"),
        ('{"body": "x</city><parameter name=\\"city\\">y"}', '{"body": "x</NEW><parameter name=\\"NEW\\">y"}'),
        ('{"city": "http://x: y", "city": null', '{"NEW": "http://x: y", "NEW": null'),
    ],
)
def test_renames_keys_in_text_of_any_notation(sent: str, expected: str) -> None:
    case = Case("a case", "go_out", declare("city"), sent)
    other, renaming = rename_case(case)
    new, tool = renaming.rename("city"), renaming.rename("go_out")
    assert other.sent == expected.replace("NEW", new).replace("TOOL", tool)


def test_renames_the_same_for_the_same_seed() -> None:
    one, two, other = (renamed("tidy_up", declare("city"), '{"city": 1}', seed) for seed in (1, 1, 2))
    assert one == two != other


def test_neither_replaces_nor_produces_a_word_of_the_protocols() -> None:
    schema = declare(*sorted(PROTOCOL_WORDS))
    assert renamed("tool", schema, '{"Arguments": {}}') == Case("a case", "tool", schema, '{"Arguments": {}}')
    for seed in range(200):
        made: Any = renamed("x", declare("a", "b", "c", "d"), "{}", seed)
        assert PROTOCOL_WORDS.isdisjoint(made.schema["properties"])
        assert READING_VERBS.isdisjoint(split_parts(made.tool))


def test_keeps_a_short_name_short_if_only_its_case_differs() -> None:
    case = renamed("set_power", declare("MW"), '{"mw": 1}')
    (key,) = json.loads(case.sent)
    assert (len(key), key.upper()) == (2, next(iter(case.schema["properties"])))


@each_row("schema", [{"patternProperties": {"^x": {}}}, {"propertyNames": {"pattern": "^x"}}])
def test_does_not_rename_a_schema_whose_names_follow_a_pattern(schema: dict[str, Any]) -> None:
    with pytest.raises(UnrenamableError):
        rename_schema({"properties": {"a": schema}}, str, str)


def test_renames_no_values() -> None:
    case = Case("a case", "tidy_up", declare("city"), '{"city": "city: tidy_up", "x": [1.50, "city"]}')
    renaming = make_renaming(case, Random(1))
    assert rename_call(case.sent, renaming).endswith('[1.50, "city"]}')
    assert '"city: tidy_up"' in rename_call(case.sent, renaming)
