"""JSON values as YAML: what is written is read back as the same value, whatever it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.config.files.yaml12 import read_yaml
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.importing.files import write_yaml

TEXTS = st.text(max_size=20) | st.text("ab 1.:-#\n[]{}$'\"|>%@`*&!,?~=/\t\u00e4\u2028", max_size=20)
WORDS = st.sampled_from(
    ["null", "~", "yes", "off", "1.0", "0o7", "12:30", "<<", "", "---", "2024-01-01", "a: b", "- a"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | WORDS,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(TEXTS | WORDS, inside, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_written_yaml_reads_back_the_same(value: JsonValue) -> None:
    assert value == read_yaml(write_yaml(value).encode()).value


def test_numbers_keep_their_text() -> None:
    value = parse(b'{"a": 1.50, "b": 1e-7, "c": 12345678901234567890123, "d": -0.0}')
    written = write_yaml(value)
    assert "a: 1.50\nb: 1e-7\nc: 12345678901234567890123\nd: -0.0\n" == written
    assert dumps(value) == dumps(read_yaml(written.encode()).value)


def test_it_is_laid_out_for_people() -> None:
    value = {
        "description": "One line: quoted.\n\n  Indented is quoted.",
        "prose": "First.\n\nSecond: with a colon.",
        "enum": ["small", "no", 1, None],
        "items": [{"type": "string"}, []],
        "empty": {},
    }
    assert """\
description: "One line: quoted.\\n\\n  Indented is quoted."
prose: |-
  First.

  Second: with a colon.
enum: [small, no, 1, null]
items:
  - type: string
  - []
empty: {}
""" == write_yaml(value)
