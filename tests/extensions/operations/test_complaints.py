"""FastAPI's complaints about path, query and header parameters become complaints about their arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.extensions.operations.served import ask, served
from tests.serving.wire import answer, replies, tool

# FastAPI 0.116.2 (pydantic 2) said this of PATCH /trips/700?notify=true&limit=9 with `X-Team: abcdefg`, title "ab".
TRIP: Final = (Path(__file__).parent / "fastapi_trip.json").read_bytes()
# The same of GET /files/A?query=x, whose parameters are called as their places are.
FILE: Final = (Path(__file__).parent / "fastapi_file.json").read_bytes()

SERVICE: Final = yaml.safe_load("""
openapi: 3.1.0
info: {title: Trips, version: "1"}
paths:
  /trips/{trip_id}:
    patch:
      operationId: update_trip
      parameters:
        - {name: trip_id, in: path, required: true, schema: {type: integer}}
        - {name: notify, in: query, required: true, schema: {type: boolean}}
        - {name: limit, in: query, schema: {type: integer}}
        - {name: x-team, in: header, schema: {type: string}}
      requestBody:
        content:
          application/json:
            schema: {type: object, properties: {title: {type: string}, limit: {type: integer}}}
      responses: {"200": {description: ok}}
  /files/{path}:
    get:
      operationId: get_file
      parameters:
        - {name: path, in: path, required: true, schema: {type: string}}
        - {name: query, in: query, schema: {type: string}}
      responses: {"200": {description: ok}}
""")


@pytest.mark.parametrize(
    ("recorded", "request_line", "body", "by_name", "places"),
    [
        (
            TRIP,
            ("PATCH", "/trips/700?notify=true&limit=9"),
            {"title": "ab"},
            ("update_trip", {"trip_id": 700, "notify": True, "query_limit": 9, "x-team": "abcdefg", "title": "ab"}),
            ["/query_limit", "/title", "/trip_id", "/x-team"],
        ),
        (FILE, ("GET", "/files/A?query=x"), None, ("get_file", {"path": "A", "query": "x"}), ["/path", "/query"]),
    ],
)
async def test_a_complaint_about_a_parameter_points_at_its_argument(
    recorded: bytes, request_line: tuple[str, str], body: Any, by_name: tuple[str, Any], places: list[str]
) -> None:
    refusal = answer("422 Unprocessable Entity", recorded, "Content-Type: application/json")
    async with tool(replies(refusal)) as server, served(SERVICE, server.url) as port:
        text = b"" if body is None else json.dumps(body).encode()
        headers = ["X-Team: abcdefg"] if text else []
        seen = [
            await ask(port, *request_line, text, *headers),
            await ask(port, "POST", f"/tools/{by_name[0]}", json.dumps(by_name[1]).encode()),
        ]
    assert [places, places] == [[each["path"] for each in json.loads(one.body)["error"]["errors"]] for one in seen]
    assert all(b"not in the body" not in one.body for one in seen)
