"""Identifier style at `standard`: names of the same words in another style, as keys and as members of an enum."""

from __future__ import annotations

import json
from typing import Final

import pytest

from proxy.core.json.jsontext import parse
from proxy.core.model.values import Decision, Forward, JsonValue, Reject
from tests.corpora.calls import judged
from tests.tables import each_row

SAME: Final = [
    ("startDate", "start_date"), ("userID", "user_id"), ("HTTPServer", "http_server"), ("getURLPath", "get_url_path"),
    ("s3Bucket", "s3_bucket"), ("address1", "address_1"), ("START_DATE", "startDate"), ("Celsius", "celsius"),
    ("in progress", "in_progress"), ("X-Lim", "x_lim"),
]  # fmt: skip
DIFFERENT: Final = [
    ("re_sign", "resign"), ("m_1_12", "m_11_2"), ("v1_10", "v11_0"), ("userid", "user_id"), ("userIDs", "user_ids"),
    ("-1", "1"), ("-asc", "asc"), ("A-", "A"), ("MW", "mw"), ("NO", "No"), ("hh:mm", "HH:mm"),
    ("slot 1 2", "slot_12"),
]  # fmt: skip
# Different as members only: a key of two parts may differ in case.
DIFFERENT_MEMBERS: Final = [*DIFFERENT, ("AM7", "Am7")]


def both_ways(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [*pairs, *((second, first) for first, second in pairs)]


def send_key(sent: str, *declared: str) -> Decision:
    schema: JsonValue = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in declared},
        "additionalProperties": False,
    }
    return judged(schema, json.dumps({sent: 1}), "standard")


def send_member(sent: str, *members: str) -> Decision:
    schema: JsonValue = {
        "type": "object",
        "properties": {"choice": {"type": "string", "enum": list(members)}},
        "required": ["choice"],
    }
    return judged(schema, json.dumps({"choice": sent}), "standard")


def becomes(decision: Decision, arguments: JsonValue, rule: str) -> bool:
    if not isinstance(decision, Forward):
        return False
    rules = [repair.rule for repair in decision.checked.repairs]
    return (parse(decision.checked.arguments), rules) == (arguments, [rule])


@each_row(("sent", "declared"), both_ways(SAME))
def test_reads_key_of_the_same_parts(sent: str, declared: str) -> None:
    assert becomes(send_key(sent, declared, "unlike"), {declared: 1}, "key_case")


@each_row(("sent", "declared"), both_ways(SAME))
def test_reads_member_of_the_same_parts(sent: str, declared: str) -> None:
    assert becomes(send_member(sent, declared), {"choice": declared}, "enum_case")


@each_row(("sent", "declared"), both_ways(DIFFERENT))
def test_rejects_key_of_other_parts(sent: str, declared: str) -> None:
    assert isinstance(send_key(sent, declared, "unlike"), Reject)


@each_row(("sent", "declared"), both_ways(DIFFERENT_MEMBERS))
def test_rejects_member_of_other_parts(sent: str, declared: str) -> None:
    assert isinstance(send_member(sent, declared), Reject)
    assert isinstance(send_member(sent, declared, "unlike"), Reject)


@each_row("sent", [" start_date", "startDate ", "\tstart date\n"])
def test_takes_white_space_around_a_name_off(sent: str) -> None:
    assert becomes(send_key(sent, "start_date"), {"start_date": 1}, "key_case")
    assert becomes(send_member(sent, "start_date"), {"choice": "start_date"}, "enum_case")


@each_row(
    "sent", ["start__date", "_start_date", "start_date_", "start/date", "start:date", "start - date", "$startDate"]
)
def test_rejects_text_without_identifier_style(sent: str) -> None:
    assert isinstance(send_key(sent, "start_date"), Reject)
    assert isinstance(send_member(sent, "start_date"), Reject)


@each_row(("sent", "declared"), [("Id", "id"), ("A", "a"), ("a", "A")])
def test_rejects_key_of_one_part_with_fewer_than_three_letters(sent: str, declared: str) -> None:
    assert isinstance(send_key(sent, declared), Reject)


@each_row(("sent", "declared"), [("City", "city"), ("CITY", "city"), ("city", "CITY"), ("Url", "url")])
def test_reads_key_of_one_part_with_three_letters(sent: str, declared: str) -> None:
    assert becomes(send_key(sent, declared), {declared: 1}, "key_case")


def test_rejects_name_that_two_declared_names_match() -> None:
    assert isinstance(send_key("start date", "startDate", "start_date"), Reject)
    assert isinstance(send_member("start date", "startDate", "start_date"), Reject)


@pytest.mark.parametrize(
    ("members", "reads"),
    [
        (("celsius", "fahrenheit"), True),
        (("CELSIUS", "FAHRENHEIT"), True),
        (("celsius", "Fahrenheit"), False),
        (("celsius", "KELVIN"), False),
    ],
)
def test_folds_case_only_if_the_members_share_one_style(members: tuple[str, ...], reads: bool) -> None:
    decision = send_member("Celsius", *members)
    if reads:
        assert becomes(decision, {"choice": members[0]}, "enum_case")
    else:
        assert isinstance(decision, Reject)
