"""`check --second-opinion`: both judges, and the differences one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.core.check.validation import compile_check
from proxy.extensions.second_judge.cli import SecondOpinions, describe_difference, make_values
from proxy.extensions.second_judge.core.question import Opinion, SecondVerdict

CONFIG = """
version: 1
listen: 127.0.0.1:0
upstreams: {tools: {url: 'http://127.0.0.1:9'}}
routes:
  - path: /weather
    upstream: tools
    tool: weather
    schema:
      type: object
      properties:
        lat: {type: number, maximum: 90, default: 48.85}
        units: {enum: [metric, imperial], examples: [metric]}
      required: [lat]
"""


def test_check_says_that_the_judges_agree_on_every_made_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    assert 0 == main(["check", str(path), "--second-opinion"])
    assert "second opinion: no difference" == capsys.readouterr().out.splitlines()[-1]


def test_values_are_examples_defaults_and_copies_with_one_property_changed() -> None:
    check = compile_check(
        {"properties": {"a": {"type": "integer", "default": 7}}, "required": ["a"], "examples": [{"a": 3}]}
    )
    values = list(make_values(check))
    assert [{"a": 3}] == values[:1]
    assert {"a": 7} in values
    assert {"a": None} in values
    assert {} in values
    assert {True, False} == {check.accepts(value) for value in values}


def test_a_difference_is_one_of_verdicts_and_says_whose(monkeypatch: pytest.MonkeyPatch) -> None:
    check = compile_check({"properties": {"a": {"maximum": 3}}})
    with SecondOpinions() as opinions:
        assert None is opinions.find_difference(check, {"a": 3})
        monkeypatch.setattr(check, "accepts", lambda value: True)  # noqa: ARG005 - as if our own check were wrong
        found = opinions.find_difference(check, {"a": 4})
    assert Opinion(SecondVerdict.INVALID, "fastjsonschema", "/properties/a/maximum") == found
    assert "accepted here, refused by fastjsonschema at /properties/a/maximum" == describe_difference(found)
