"""docs/repair.md and docs/reference/rules.md are what the rule table says, docs/evidence/repairs.md what the never list
and the collections say."""

from __future__ import annotations

from proxy.core.contract.toolname import trim, unfold
from proxy.core.rules.rules import LEVEL_MEANINGS, LEVELS, RULES
from tests.core.test_never import REFUSED, UNTOUCHED
from tests.core.test_rules import APPLIES, LEAVES
from tests.docs.repair import EVIDENCE, NAMES, PAGE, RULES_PAGE, evidence, page, rules_page


def test_the_page_is_made_from_the_tables() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run `make docs`"
    assert rules_page() == RULES_PAGE.read_text(encoding="utf-8"), "run `make docs`"
    assert evidence() == EVIDENCE.read_text(encoding="utf-8"), "run `make docs`"


def test_the_page_names_every_rule_level_and_reason() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [] == [name for name in (*RULES, *LEVELS) if f"`{name}`" not in text]
    rules = RULES_PAGE.read_text(encoding="utf-8")
    cases = EVIDENCE.read_text(encoding="utf-8")
    assert [] == [reason for reason in (*REFUSED, *UNTOUCHED) if f"- {reason}: " not in cases]
    assert [] == [rule.name for rule in RULES.values() if rule.condition.replace("|", "\\|") not in rules]


def test_every_text_says_what_a_level_means_in_the_same_words() -> None:
    root = PAGE.parent.parent
    published = (root / "schemas/config.schema.json").read_text(encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    for level, meaning in LEVEL_MEANINGS.items():
        assert f"`{level}`: {meaning}" in published
        assert f"- `{level}`: {meaning}" in page
    assert f"#   lenient   {LEVEL_MEANINGS['lenient']}: " in (root / "config.example.yaml").read_text(encoding="utf-8")


def test_the_names_of_tools_on_the_page_have_the_stated_outcome() -> None:
    for rule, find in (("tool_name_trim", trim), ("tool_name_fold", unfold)):
        sent, made, left = NAMES[rule]
        assert (made, None) == (find(sent, {made}), find(left, {made}))


def test_every_rule_has_cases_in_the_place_that_the_page_names() -> None:
    elsewhere = {rule.name for rule in RULES.values() if rule.kind in {"name", "output"}}
    assert set(NAMES) <= elsewhere
    assert [] == [rule for rule in RULES if rule not in elsewhere and not (APPLIES.get(rule) and LEAVES.get(rule))]
