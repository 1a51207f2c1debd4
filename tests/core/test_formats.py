"""Formats: which ones each draft asserts, and one good and one bad text of each (the suite holds the rest)."""

from __future__ import annotations

import pytest

from proxy.core.schema.drafts import Draft
from proxy.core.schema.formats import format_check

TEXTS = {
    "date-time": ("2026-01-31T10:00:00Z", "2026-01-31 10:00"),
    "date": ("2026-01-31", "2026-02-31"),
    "time": ("10:00:00Z", "25:00:00Z"),
    "duration": ("P1DT2H", "1 day"),
    "email": ("a@example.org", "a@"),
    "idn-email": ("실례@실례.테스트", "2962"),
    "hostname": ("example.org", "-x"),
    "idn-hostname": ("실례.테스트", "〮실례.테스트"),
    "ipv4": ("127.0.0.1", "127.0.0.256"),
    "ipv6": ("::1", "12345::"),
    "uri": ("https://example.org/a", "/a"),
    "uri-reference": ("/a", "\\\\a"),
    "iri": ("https://example.org/é", "/é"),
    "iri-reference": ("/é", "\\\\a"),
    "uuid": ("2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08"),
    "uri-template": ("/a/{b}", "/a/{b"),
    "json-pointer": ("/a/~0", "/a/~"),
    "relative-json-pointer": ("1/a", "/a"),
    "regex": ("^a+$", "^(a"),
}
SINCE_2019 = {"duration", "uuid"}
SINCE_7 = {"idn-hostname", "iri", "iri-reference", "relative-json-pointer"}
SINCE_6 = {"uri-reference", "uri-template", "json-pointer"}


@pytest.mark.parametrize("name", TEXTS)
def test_a_known_format_takes_the_good_text_and_refuses_the_bad_one(name: str) -> None:
    check = format_check(name, Draft.D2020)
    assert check is not None
    assert (True, False) == (check(TEXTS[name][0]), check(TEXTS[name][1]))


@pytest.mark.parametrize(
    ("draft", "unknown"),
    [
        (Draft.D4, SINCE_2019 | SINCE_7 | SINCE_6),
        (Draft.D6, SINCE_2019 | SINCE_7),
        (Draft.D7, SINCE_2019),
        (Draft.D2019, set()),
        (Draft.D2020, set()),
    ],
)
def test_a_draft_asserts_the_formats_it_knows(draft: Draft, unknown: set[str]) -> None:
    assert unknown == {name for name in TEXTS if format_check(name, draft) is None}


@pytest.mark.parametrize("name", ["int32", "float", "password", "binary", "color"])
def test_a_format_nobody_defined_is_an_annotation(name: str) -> None:
    assert format_check(name, Draft.D2020) is None
