"""The proxy warns the operator once per tool that models send null for an optional value which refuses it."""

from __future__ import annotations

import json

import pytest

from tests.serving.proxied import proxied

_SCHEMA = (
    "{type: object, required: [id], properties: {id: {type: integer}, note: {type: string}, "
    "kept: {type: string, x-null: refuse}, at: {type: object, properties: {lat: {type: number}}}}}"
)
_EVENT = "null refused at an optional key"


def _route(more: str = "") -> str:
    return f"\n  - {{path: /edit, upstream: tools, tool: edit_note, schema: {_SCHEMA}{more}}}\n"


async def _told(routes: str, *bodies: str) -> list[dict[str, str]]:
    async with proxied(routes) as proxy:
        for body in bodies:
            await proxy.post("/edit", body.encode())
        lines = [json.loads(line) for line in proxy.log.getvalue().splitlines()]
    return [line for line in lines if line["message"] == _EVENT]


async def test_tells_the_place_and_the_remedy_once_per_tool() -> None:
    told = await _told(_route(), '{"id": "x", "at": {"lat": null}}', '{"id": 1, "note": null}')

    assert [("/edit", "edit_note", "/at/lat")] == [(line["route"], line["tool"], line["place"]) for line in told]
    assert "`null_optional: drop`" in told[0]["remedy"]


@pytest.mark.parametrize(
    ("more", "body"),
    [
        ("", '{"id": null}'),
        ("", '{"id": 1, "note": 5}'),
        ("", '{"id": 1, "kept": null}'),
        (", null_optional: refuse", '{"id": 1, "note": null}'),
        (", null_optional: drop", '{"id": "x", "note": null}'),
        (", repair: off", '{"id": 1, "note": null}'),
    ],
    ids=["a required key", "no null", "decided by the schema", "refuse", "drop", "no repairs"],
)
async def test_says_nothing_if_the_line_would_change_nothing(more: str, body: str) -> None:
    assert [] == await _told(_route(more), body)
