"""Every notation is read and encoded back: what was sent comes out again, and so does what was read."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.json.jsontext import JSON_TYPES, LosslessFloat, are_equal, dumps, parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.core.rules.facts import may_change
from proxy.core.rules.proposals import Site
from proxy.core.rules.rules import RULES, select_value_rules
from tests.core.test_rules import APPLIES

NOTATIONS: Final = select_value_rules(frozenset(RULES))
# Notations whose text may be written in several ways: compared by the value in it.
_JSON: Final = frozenset({"parse_json_string", "json_item", "python_literal", "self_wrapped"})

_TEXTS: Final = st.sampled_from(
    ["5", " 5 ", "-0", "-0.0", "5.0", "1.50", "1e3", ".5", "-.25e1", "1,000,000", "-1,234,567.50", "true", "0", "yes",
     "OFF", "t", "null", "None", "Red", " red ", "Red.", '"5"', "'red'", "`true`", "2026/1/5", "20260115",
     "2026-01-15 10:00:00 +0200", "[1, 2]", '{"a": [1.50]}', "['a', True]", "{'a': None}", "red, green", "red;green",
     "a@x.org,b@y.org", "a,b,c", "'a', 'b'", "plain"]
)  # fmt: skip
_SCALARS: Final = (
    st.none()
    | st.booleans()
    | st.integers()
    | _TEXTS
    | st.sampled_from([LosslessFloat(b"3.0"), LosslessFloat(b"1.10")])
)
_VALUES: Final = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "value", "item", "tags"]), inner, max_size=2)
        | st.lists(st.sampled_from(["one\n", "two", "a\nb\n"]), min_size=2, max_size=3)
    ),
    max_leaves=5,
)
_SITES: Final = st.builds(
    Site,
    types=st.frozensets(st.sampled_from(JSON_TYPES), min_size=1),
    free_text=st.just(False),
    choices=st.none() | st.just(("red", "green", "True", "5", 1)),
    name=st.sampled_from(["tags", "a"]),
    json_text=st.booleans(),
    item_keys=st.just(frozenset({"a"})),
    item_choices=st.just(()) | st.just(("red", "green")),
    item_formats=st.just(frozenset[str]()) | st.just(frozenset({"email"})),
    formats=st.sampled_from([frozenset[str](), frozenset({"date"}), frozenset({"date-time"})]),
    is_fixed_length=st.booleans(),
)


def canonical(value: JsonValue) -> Any:
    """A text without white space around it; JSON text as the value in it."""
    if not isinstance(value, str):
        return value
    read = parse(value.strip().encode("utf-8", "surrogatepass"))
    return value.strip() if isinstance(read, JsonProblem) else canonical(read)


@given(_VALUES, _SITES)
def test_encodes_what_it_read_and_reads_what_it_encoded(sent: JsonValue, site: Site) -> None:
    for rule in NOTATIONS:
        result = rule.read(sent, site) if rule.read is not None and may_change(rule, type(sent), site) else None
        if result is None or rule.read is None:
            continue
        again = rule.encode(*result)
        if rule.name in _JSON:
            assert rule.name == "python_literal" or are_equal(canonical(sent), canonical(again)), rule.name
        else:
            assert are_equal(canonical(sent), canonical(again)), (rule.name, sent, again)
        once_more = rule.read(again, site)
        assert once_more is not None, rule.name
        assert are_equal(result[0], once_more[0]), rule.name


def test_every_notation_is_among_the_examples() -> None:
    assert {rule.name for rule in NOTATIONS} <= APPLIES.keys()
    assert dumps("") == b'""'
