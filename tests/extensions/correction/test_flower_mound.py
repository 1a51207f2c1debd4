"""GoMind's other example: "weather in Flower Mound, TX" fails, and the corrected location is delivered (Part 4)."""

from __future__ import annotations

import json

from tests.extensions.correction.model import failed, rig, says
from tests.serving.wire import JSON_TYPE, answer, replies

ROUTE = """
  - path: /weather
    upstream: tools
    tool: current_weather
    schema:
      type: object
      properties: {location: {type: string}, units: {enum: [metric, imperial]}}
      required: [location]
    correct: {semantic_retry: on}
"""
NOT_FOUND = failed(
    "404 Not Found", "LOCATION_NOT_FOUND", "Location 'Flower Mound, TX' not found in weather database", "NOT_FOUND",
    original_location="Flower Mound, TX", hint="Try 'City, Country' format",
)  # fmt: skip
FOUND = answer("200 OK", b'{"success": true, "data": {"location": "Flower Mound", "temperature": 25.3}}', JSON_TYPE)
VERDICT = {
    "can_fix": True,
    "analysis": "TX is a US state abbreviation. OpenWeatherMap prefers full format.",
    "corrected_payload": {"location": "Flower Mound, Texas, US", "units": "metric"},
}


async def test_the_call_is_delivered_with_the_corrected_location() -> None:
    async with rig(says(VERDICT), replies(NOT_FOUND, FOUND), ROUTE) as it:
        seen = await it.proxy.post("/weather", b'{"location": "Flower Mound, TX", "units": "metric"}')

    assert b'{"location":"Flower Mound, Texas, US","units":"metric"}' == it.tool.seen[1].body
    assert (200, 25.3) == (seen.status, json.loads(seen.body)["data"]["temperature"])
    prompt = it.prompts()[0]
    for told in (
        "HTTP status: 404",
        "LOCATION_NOT_FOUND (NOT_FOUND)",
        "Try 'City, Country' format",
        "Flower Mound, TX",
    ):
        assert told in prompt


async def test_a_verdict_that_also_touches_what_had_not_failed_takes_one_question() -> None:
    both = ROUTE.replace("{semantic_retry: on}", "{validation_feedback: on, semantic_retry: on}")
    whole = {"location": "Flower Mound, Texas, US", "units": "imperial"}
    async with rig(says({"can_fix": True, "corrected_payload": whole}), replies(NOT_FOUND, FOUND), both) as it:
        seen = await it.proxy.post("/weather", b'{"location": "Flower Mound, TX", "units": "metric"}')
    assert (200, [("semantic_retry", "delivered")]) == (seen.status, it.outcomes())
    assert whole == json.loads(it.tool.seen[1].body)
