"""Markup of a call inside a value: rejected if it is certain, a warning if it may be, and no word about files."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from proxy.core.contract.policy import LeakedMarkup
from proxy.core.json.jsontext import dumps
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import Forward, JsonValue, Reject, Violation
from tests.core.repairing import judged, obj, policy, told

STR: Final[JsonValue] = {"type": "string"}
NOTE: Final[JsonValue] = {**obj(content=STR, reason=STR, tags={"type": "array", "items": STR}), "required": ["content"]}
NS: Final = "antml:"


def said_of(text: str, guard: LeakedMarkup = LeakedMarkup.REFUSE, **others: str) -> list[str]:
    """Returns what is said of a note with this text: `error VAL-013 /content`, `warning ...`; nothing where it just
    passes."""
    decision = judged(dumps({"content": text, **others}), replace(policy(NOTE), leaked_markup=guard))
    found = decision.failure.violations if isinstance(decision, Reject) else decision.checked.warnings
    return [f"{v.severity.value} {v.code} {''.join(f'/{step}' for step in v.path)}" for v in found]


ERROR: Final = ["error VAL-013 /content"]
WARNING: Final = ["warning VAL-013 /content"]


@pytest.mark.parametrize(
    "text",
    [
        "That path's 100% reliable.</payload>\n</invoke>",
        'long text</content>\n<parameter name="reason">because',
        '<parameter name="reason">because',
        "<parameter=reason>\nbecause",
        "done</parameter>\n</invoke>\n</function_calls>\n",
        "done</parameter>",
        f"done</{NS}parameter>\n</{NS}invoke>",
        "done</｜DSML｜parameter>\n</｜DSML｜invoke>",
        "done</arg_value>\n</tool_call>",
        "done</arg_value>\n<arg_key>reason</arg_key>\n<arg_value>because",
        "</ invoke>",
        "< /in voke >",
        "</anthropic:parameter>\n</anthropic:invoke>",
        "</tool call>",
        "< / parameter>\n</ invoke>",
        '</parameter>\n<vendor:parameter name="reason">',
        "</vendor parameter>",
        "</vendor_parameter>\n</vendor-invoke>",
        "</ vendor.tool call >",
        "</vendor::parameter>\n</vendor/function calls>",
        "</|vendor|parameter>",
        '<vendor parameter name="reason">',
        "<vendor parameter=reason>",
        "Paris<|call|>",
        "Paris<|im_end|>",
        "Paris<｜tool▁call▁end｜>",
    ],
)
def test_a_text_that_ends_in_the_call_or_holds_another_parameter_is_refused(text: str) -> None:
    assert ERROR == said_of(text)
    assert WARNING == said_of(text, LeakedMarkup.WARN)
    assert [] == said_of(text, LeakedMarkup.OFF)


@pytest.mark.parametrize(
    "text",
    [
        "Paris<|channel|>commentary",
        'see <parameter name="content"> for more',
        "a </invoke> in the middle of a text",
        'x</parameter>\n<parameter name="reason">because of what is there',
    ],
)
def test_loose_markup_that_tells_nothing_for_certain_is_a_warning(text: str) -> None:
    assert WARNING == said_of(text, reason="r")


@pytest.mark.parametrize(
    "text",
    [
        "<!doctype html>\n<html><body><p>Hi</p></body></html>",
        '<plugin>\n  <parameters>\n    <parameter name="reason">none</parameter>\n  </parameters>\n</plugin>\n',
        '<beans><bean><parameter name="tags" value="x"/></bean></beans>',
        'A call is `<invoke name="f"><parameter name="reason">` and its end `</invoke>`',
        'The format:\n```xml\n<parameter name="reason">because\n</invoke>\n```\nThat is all.',
        '<function_calls><invoke name="f"><parameter name="reason">x</parameter></invoke></function_calls>',
        "if a < b and c > d: print('<|')",
        "<p>unclosed paragraph\n<br>\n<li>item",
        "std::vector<function> v; x->parameter",
        "<tool call></tool call>",
        "</ns:section>",
        "</vendor section>",
        "<vendor parameter></vendor parameter>",
        "<parameter/>",
        "a < b / c >",
        "plain text",
    ],
)
def test_content_about_markup_passes_without_a_word(text: str) -> None:
    assert [] == said_of(text)


def test_the_answer_says_which_value_and_what_to_send_apart() -> None:
    decision = judged(dumps({"content": 'Note</content>\n<parameter name="reason">because'}), policy(NOTE))
    assert isinstance(decision, Reject)
    assert (
        Violation(
            codes.LEAKED_MARKUP,
            ("content",),
            "Field 'content' holds markup of the tool call itself: </content>",
            "text without markup of the call",
            "Send 'reason' as a separate parameter, and the text of 'content' without the tags of the call.",
            Severity.ERROR,
        ),
    ) == decision.failure.violations


def test_markup_is_found_in_every_text_and_however_json_spells_it() -> None:
    sent = '{"content":"x","tags":["a","b\\u003c/parameter>\\u003C\\/invoke>"]}'
    assert "VAL-013 /tags/1" == told(judged(sent, policy(NOTE)))


def test_a_warning_leaves_the_bytes_unchanged() -> None:
    sent = '{ "content" : "a </invoke> in a text" }'
    decision = judged(sent, policy(NOTE))
    assert isinstance(decision, Forward)
    assert sent.encode() == decision.checked.arguments
    assert ["VAL-013"] == [str(warning.code) for warning in decision.checked.warnings]
