"""YAML 1.2 core schema: the meaning of plain text, rejected syntax, and the place of every value."""

from __future__ import annotations

import pytest
import yaml

from proxy.config.files.yaml12 import YamlError, YamlNode, read_scalar, read_yaml
from proxy.core.json.jsontext import LosslessFloat, dumps


@pytest.mark.parametrize(
    "text",
    ["off", "on", "yes", "no", "Yes", "NO", "y", "n", "12:30", "2024-01-01", "1_000", "0b11", "08:15:00", "+", "1.2.3",
     "0o8", "0xg", "tRUE", "None", "=", "0x", "1e", "e3"],
)  # fmt: skip
def test_text_that_yaml_1_1_would_read_otherwise_stays_text(text: str) -> None:
    assert {"key": text} == read_yaml(f"key: {text}".encode()).value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None), ("0", 0), ("-7", -7),
        ("+7", 7), ("007", 7), ("0o17", 15), ("0xFf", 255),
        ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)  # fmt: skip
def test_words_and_integers_have_their_core_meaning(text: str, value: object) -> None:
    found = read_scalar(text)
    assert (value, type(value)) == (found, type(found))


@pytest.mark.parametrize(
    ("text", "number"),
    [("1.5", "1.5"), ("1.10", "1.10"), (".5", "0.5"), ("1.", "1.0"),
     ("+1.5", "1.5"), ("-.5e3", "-0.5e3"), ("1e3", "1e3"),
     ("01.5", "1.5"), ("0.0", "0.0")],
)  # fmt: skip
def test_a_number_keeps_its_text_in_the_grammar_of_json(text: str, number: str) -> None:
    found = read_scalar(text)
    assert isinstance(found, LosslessFloat)
    assert number.encode() == dumps(found)


def test_quoted_text_is_text_whatever_it_looks_like() -> None:
    assert ["true", "1", "null", "1.5\n"] == read_yaml(b'["true", \'1\', "null", "1.5\\n"]').value


def test_keys_are_text_as_openapi_files_need_it() -> None:
    assert {"200": 1, "true": 2, "on": 3} == read_yaml(b"200: 1\ntrue: 2\non: 3").value


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        (b"a: 1\nb: 2\na: 3", 3, 1, "duplicate key 'a', first on line 1"),
        (b"x:\n  a: 1\n  'a': 3", 3, 3, "duplicate key 'a', first on line 2"),
        (b"a: !!int 3", 1, 4, "tags such as tag:yaml.org,2002:int"),
        (b"a: !thing {b: 1}", 1, 4, "tags such as !thing"),
        (b"a: !!python/object:os.system x", 1, 4, "tags such as"),
        (b"a: 1\nb: *c", 2, 4, "no anchor &c before this alias"),
        (b"a: &a [1, *a]", 1, 11, "is inside its own anchor"),
        (b"base: &b {x: 1}\nc:\n  <<: *b", 3, 3, "merge keys (<<) are YAML 1.1"),
        (b"a: .inf", 1, 4, ".inf is not a JSON value"),
        (b"a: .NaN", 1, 4, ".NaN is not a JSON value"),
        (b"a: 1\n---\nb: 2", 2, 1, "a second document"),
        (b"? [a]\n: 1", 1, 3, "a key is plain text"),
        (b"a: b: c", 1, 5, "a key is not allowed here: align it"),
        (b"a:\n\t- b", 2, 1, "a tab cannot indent: write spaces"),
        (b"", 1, 1, "the file is empty"),
        (b"# only words\n", 1, 1, "the file is empty"),
        (b"a: \xff", 1, 4, "the file is not UTF-8"),
        (b"a: \x01", 1, 4, "not YAML"),
        (b"[" * 200, 1, 101, "nested deeper than 100 levels"),
    ],
)
def test_rejects_yaml_that_is_no_json_or_could_be_read_two_ways(
    text: bytes, line: int, column: int, words: str
) -> None:
    with pytest.raises(YamlError) as caught:
        read_yaml(text)
    assert (line, column) == (caught.value.line, caught.value.column)
    assert words in caught.value.message


def test_an_alias_gives_the_value_of_its_anchor() -> None:
    assert {"a": {"x": [1]}, "b": {"x": [1]}} == read_yaml(b"a: &a {x: [1]}\nb: *a").value


def test_aliases_that_unfold_without_bound_are_refused() -> None:
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 10)]
    with pytest.raises(YamlError, match="unfolds to more than") as caught:
        read_yaml(b"\n".join(lines))
    assert caught.value.line == 7


def test_every_value_and_key_knows_its_place() -> None:
    node = read_yaml(b'a: 1\nlist:\n  - x\n  - {deep: "y"}\nb: &n\n  c: 2\nd: *n\n')
    assert {
        ("a",): (1, 4), ("list", 0): (3, 5), ("list", 1): (4, 5), ("list", 1, "deep"): (4, 12), ("b", "c"): (6, 6),
        ("d", "c"): (6, 6), (): (1, 1),
    } == {
        path: node.at(path)
        for path in [("a",), ("list", 0), ("list", 1), ("list", 1, "deep"), ("b", "c"), ("d", "c"), ()]
    }  # fmt: skip
    assert [(1, 1), (4, 6), (6, 3), (3, 5)] == [
        node.at(path, key=True) for path in [("a",), ("list", 1, "deep"), ("b", "c"), ("list", 0)]
    ]


def test_a_place_that_is_not_there_is_the_nearest_around_it() -> None:
    node = read_yaml(b"a:\n  b: 1\n")
    assert [(2, 3), (2, 3), (2, 6)] == [node.at(("a", "zz")), node.at(("a", "zz"), key=True), node.at(("a", "b", "c"))]


def test_columns_count_characters_and_a_byte_order_mark_counts_for_nothing() -> None:
    assert (1, 12) == read_yaml('{"ä": "ö", x: 1}'.encode("utf-8-sig")).at(("x",), key=True)


@pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="this PyYAML was built without libyaml")
def test_the_parser_in_python_gives_the_same_places() -> None:
    text = (
        b"# words\nversion: 1\nroutes:\n- path: /a # more\n"
        b"  'schema': {type: object, x: [1,\n    2.50, ~]}\n  text: |\n    a\n    b\n"
    )
    assert repr(laid_out(read_yaml(text, yaml.CSafeLoader))) == repr(laid_out(read_yaml(text, yaml.SafeLoader)))


def laid_out(node: YamlNode) -> list[object]:
    """A tree as nested lists: value of a leaf, place, places of the keys, children."""
    leaf = None if node.children else node.value
    return [leaf, node.line, node.column, node.keys, {step: laid_out(child) for step, child in node.children.items()}]
