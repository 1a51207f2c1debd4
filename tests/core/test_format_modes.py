"""Modes of `format`: how strictly dates and times are validated."""

from __future__ import annotations

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.schema.formats import NONE, STRICT, USUAL, Formats

MOMENT = {"type": "string", "format": "date-time"}

# Spellings that FastAPI's `datetime` takes; true if RFC 3339 takes them too.
SPELLINGS = {
    "2026-12-01T09:00:00Z": True,
    "2026-12-01T09:00:00+01:00": True,
    "2026-12-01T09:00:00": False,
    "2026-12-01 09:00:00": False,
    "2026-12-01T09:00": False,
    "2026-12-01T09:00Z": False,
    "2026-12-01 09:00:00.123+0100": False,
}


@pytest.mark.parametrize(("text", "strictly"), SPELLINGS.items(), ids=SPELLINGS)
def test_accepts_the_spellings_of_tools_unless_the_config_is_strict(text: str, strictly: bool) -> None:
    assert compile_check(MOMENT, formats=USUAL).accepts(text)
    assert strictly == compile_check(MOMENT, formats=STRICT).accepts(text)
    assert strictly == compile_check(MOMENT, formats=Formats(True, (("date-time", "rfc3339"),))).accepts(text)


@pytest.mark.parametrize(
    "text",
    ["tomorrow", "2026-12-01", "2026-13-01T09:00", "2026-02-30 09:00", "2026-12-01T24:00", "2026-12-01T09:60", ""],
)
def test_rejects_text_that_is_no_date_and_time_in_every_mode(text: str) -> None:
    assert not compile_check(MOMENT, formats=USUAL).accepts(text)
    assert compile_check(MOMENT, formats=NONE).accepts(text)


def test_a_time_may_lack_its_zone_and_a_date_stays_a_date() -> None:
    assert compile_check({"format": "time"}, formats=USUAL).accepts("09:00")
    assert not compile_check({"format": "time"}, formats=USUAL).accepts("9:00")
    assert not compile_check({"format": "date"}, formats=USUAL).accepts("01.12.2026")


def test_a_property_can_say_it_for_itself() -> None:
    schema = {"properties": {"a": {**MOMENT, "x-format": "rfc3339"}, "b": {**MOMENT, "x-format": "off"}, "c": MOMENT}}
    check = compile_check(schema, formats=USUAL)
    assert [False, True, True] == [
        check.accepts({"a": "2026-12-01T09:00"}),
        check.accepts({"b": "tomorrow"}),
        check.accepts({"c": "2026-12-01T09:00"}),
    ]


def test_other_formats_stay_asserted() -> None:
    assert not compile_check({"format": "email"}, formats=USUAL).accepts("x")


def test_a_schema_that_only_a_library_can_validate_has_the_same_modes() -> None:
    schema = {
        "type": "object",
        "$dynamicAnchor": "node",
        "properties": {"at": MOMENT, "next": {"$dynamicRef": "#node"}},
    }
    for formats, taken in ((USUAL, True), (STRICT, False), (Formats(True, (("date-time", "off"),)), True)):
        assert taken == compile_check(schema, formats=formats).accepts({"at": "2026-12-01 09:00"})
