"""Text repair: class by class, only after strict parsing failed, and never where braces do not balance."""

from __future__ import annotations

from typing import Final

import pytest

from proxy.core.json.embedded import read_python_value
from proxy.core.json.jsontext import TextLimits, read_document
from proxy.core.json.textrepair import repair_text
from proxy.core.model.values import Document, JsonProblem
from proxy.core.rules.rules import TEXT_RULES, select_rules

ALL: Final = TEXT_RULES
STANDARD: Final = select_rules("standard") & ALL


def read(text: str | bytes, classes: frozenset[str] = ALL) -> str:
    """The text that is read, with the classes it took in front: `comments: {...}`; or the problem."""
    document = read_document(text.encode() if isinstance(text, str) else text, TextLimits(), classes)
    if isinstance(document, JsonProblem):
        return "truncated" if document.truncated else "refused"
    names = ",".join(made.rule for made in document.repairs)
    return f"{names}: {document.text.decode()}"


def test_strict_json_is_read_as_it_is_whatever_it_looks_like() -> None:
    for text in (
        '{"a":"```"}',
        '{"a":"// x"}',
        '{"a":"it\'s \\"so\\""}',
        '{"a":"True"}',
        '"{}"',
        " [1] ",
        '{"a":"}{"}',
    ):
        assert f": {text}" == read(text)
        assert Document is type(read_document(text.encode(), TextLimits(), frozenset()))


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ('code_fence: {"a":1}', '```json\n{"a":1}\n```'),
        ('code_fence: {"a":1}', '\n```JSON  \r\n{"a":1}\r\n``` \n'),
        ('code_fence,trailing_commas: {"a":1}', '```\n{"a":1,}\n```'),
        ('control_characters: {"a":"x\\u000ay"}', '{"a":"x\ny"}'),
        ('control_characters: {"a\\u0009":1}', '{"a\t":1}'),
        ('repeated_body: {"a":1}', '{"a":1}\n\n{"a":1}'),
        ('trailing_text: {"a":1}', '{"a":1}\n```'),
        ('trailing_text: {"a":1}', '{"a":1}}'),
        ('call_markup: {"a":1}', '<tool_call>{"a":1}</tool_call>'),
        ('call_markup: {"a":1}', '<|python_tag|>{"a":1}'),
        ('bare_keys: {"a":1}', "{a:1}"),
        ('needless_escapes: {"a":"it\'s"}', '{"a":"it\\\'s"}'),
        ('escaped_text: {"a":1}', '{\\"a\\":1}'),
        ('trailing_commas: {"a":[1,{}]}', '{"a":[1,{},],}'),
        ('comments: {"a":1}', '// first\n{"a": /* one */ 1}\n// last\n'),
        ('single_quotes: {"a":"it\'s"}', "{'a':'it\\'s'}"),
        ('single_quotes: {"a":"say \\"hi\\""}', "{'a':'say \"hi\"'}"),
        ('python_literals: {"a":[true,false,null]}', '{"a":[True,False,None]}'),
        ('windows_paths: {"a":"C:\\\\Users\\\\new"}', '{"a":"C:\\Users\\new"}'),
        ('windows_paths: {"a":"\\\\\\\\srv\\\\data"}', '{"a":"\\\\srv\\data"}'),
        ('unescaped_quotes: {"a":"<a href=\\"x\\">"}', '{"a":"<a href="x">"}'),
        ('unescaped_quotes: {"a":"say \\"hi\\" now","b":1}', '{"a":"say "hi" now","b":1}'),
        ('python_literals,single_quotes,trailing_commas: {"a":true}', "{'a':True,}"),
        ('comments: {"a":"// no comment"}', '{"a":"// no comment"}/* but this */'),
    ],
)
def test_each_class_repairs_its_own(expected: str, text: str) -> None:
    assert expected == read(text)


@pytest.mark.parametrize(
    "text", ['{"a":1', '{"a":"x', '{"a":[1,2}', '[{"a":1}', "{'a':'x", '```json\n{"a":1', '{"a":1,', "{"]
)
def test_never_completes_unbalanced_text(text: str) -> None:
    assert read(text) in ("truncated", "refused")


def test_a_cut_off_call_says_so() -> None:
    assert "truncated" == read('{"path":"x","content":"some te')
    assert "truncated" == read('{"a":[1,2')


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1}{"a":2}', '{"a":1}\n{"b":1}\n', '{"a":1}{"a":1}{"a":1}', '{"a":1} and [2]', '{"a":1}"x"',
        "{a b:1}", '{"a" 1}', '{"a":1 "b":2}', '{"a":,}', "[1,,2]", "[,1]", '{"a":01}', '{"a":+x}', '{"a":.5}',
        '{"a":NaN}',
        '{"a":undefined}', '{"a":0x10}', '{"a":1_000}', '{"a":"\\x41"}', '{"a":"\\u12"}', "{'a':'it's'}", '{"a":"x"y"}',
        '{"a":"x" "y"}', "plain words", "<tool>{}</tool>",
        '{"a":1}}}', '{"a":1} EUR',
        "<tool_call>stop {}</tool_call>", '{"a":1}</no>', "{'a':\"x'}", '{"a":"b""c"}', "5 // five", "",
        '{"a":“x}', "{\"a\":1,\"a\":2,}",
    ],
)  # fmt: skip
def test_rejects_text_with_more_than_one_reading_even_with_every_class(text: str) -> None:
    assert "refused" == read(text)


@pytest.mark.parametrize("name", sorted(TEXT_RULES))
def test_no_class_is_used_that_is_not_allowed(name: str) -> None:
    samples = {
        "code_fence": '```\n{"a":1}\n```', "control_characters": '{"a":"x\ny"}', "repeated_body": '{"a":1}{"a":1}',
        "windows_paths": '{"a":"C:\\Users"}', "trailing_text": '{"a":1}}', "trailing_commas": '{"a":1,}',
        "comments": '{"a":1}// x\n', "single_quotes": "{'a':1}", "python_literals": '{"a":True}',
        "unescaped_quotes": '{"a":"say "hi" now"}', "curly_quotes": '{“a”:1}',
        "call_markup": '<tool_call>{"a":1}', "bare_keys": "{a:1}", "needless_escapes": '{"a":"\\$5"}',
        "escaped_text": '{\\"a\\":1}',
    }  # fmt: skip
    assert read(samples[name], frozenset({name})).startswith(f"{name}: ")
    assert read(samples[name], ALL - {name}) in ("refused", "truncated")


def test_the_classes_of_standard_lose_nothing() -> None:
    assert {"code_fence", "control_characters", "repeated_body", "call_markup"} == STANDARD


def test_repaired_text_obeys_every_bound_of_strict_text() -> None:
    assert "refused" == read("[" * 65 + "1," + "]" * 65)
    assert "refused" == read("['a'," + "1," * 100_000 + "]")
    assert "refused" == read('{"a":1e400,}')
    assert "refused" == read(b'{"a":"\xff",}')
    assert "refused" == read("{'a':'\\ud800'}")
    assert repair_text(b"['" + b"x" * 300_000 + b"']", ALL) is None


@pytest.mark.parametrize(
    "text", ["```" + " " * 50_000 + "x```", "{'a':" + "(" * 50_000, '{"a":"' + '\\"' * 50_000, "[" * 90_000]
)
def test_a_text_made_to_be_slow_is_read_once(text: str) -> None:
    assert read(text) in ("refused", "truncated")


# --- Python literals ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (["a", "b"], "['a', 'b']"), (["a"], " [ 'a' , ] "), ({"a": [True, None]}, "{'a': [True, None]}"),
        (["it's", 'say "x"'], "['it\\'s', 'say \"x\"']"), (["é"], "['\\xe9']"), ([[]], "[[]]"), ([-5], "[-5]"),
    ],
)  # fmt: skip
def test_a_python_literal_of_json_values_is_read(expected: object, text: str) -> None:
    assert expected == read_python_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "('a',)", "{'a'}", "'a'", "1", "[1+1]", "[a]", "[f()]", "[b'a']", "['a' 'b']", "[1 2]", "[0x1]", "[1_0]",
        "[007]",
        "[.5]", "[1j]", "{1: 2}", "{'a': 1, 'a': 2}", "['\\d']", "['a']]", "[['a']", "['a\nb']", "[not True]", "[*[1]]",
        "[" * 40 + "]" * 40, "[" * 50_000 + "]" * 50_000, "[" + "-" * 50_000 + "1]", "[" + "1," * 60_000 + "]",
        "['\\ud800']",
        "[lambda: 1]", "[1 if 1 else 2]", "[...]", "[nan]", "[1e400]",
    ],
)  # fmt: skip
def test_anything_else_is_no_literal(text: str) -> None:
    assert read_python_value(text) is None
