"""Five schemas of tools, each with a valid body, a damaged one and one with four errors: what engines are timed on."""

from __future__ import annotations

import copy
import json
from typing import Any, Final


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _tagged(kind: str, **properties: Any) -> dict[str, Any]:
    return _object(["kind", *properties], kind={"const": kind}, **properties)


TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "number"}
WHOLE: Final = {"type": "integer"}
SWITCH: Final = {"type": "boolean"}

TINY: Final = _object(
    ["city", "days"], city=TEXT, days={**WHOLE, "minimum": 1, "maximum": 14}, metric=SWITCH, lat=NUMBER
)
BOOKING: Final = _object(
    ["id", "guest", "room", "nights"],
    id=TEXT, nights={**WHOLE, "minimum": 1}, paid=SWITCH, price=NUMBER, currency={"enum": ["EUR", "USD", "GBP"]},
    guest=_object(["name", "email"], name={**TEXT, "minLength": 1}, email=TEXT, age=WHOLE, vip=SWITCH),
    room=_object(["number"], number=WHOLE, floor=WHOLE, beds={"type": "array", "items": TEXT}, smoking=SWITCH),
    notes=TEXT, tags={"type": "array", "items": TEXT, "maxItems": 20},
)  # fmt: skip
ROW: Final = _object(["id", "name"], id=WHOLE, name=TEXT, price=NUMBER, ok=SWITCH)
ROWS: Final = _object(["rows"], rows={"type": "array", "items": ROW})
UNION: Final = _object(
    ["steps"],
    steps={
        "type": "array",
        "items": {
            "oneOf": [
                _tagged("wait", seconds=NUMBER),
                _tagged("click", x=WHOLE, y=WHOLE),
                _tagged("type", text=TEXT, enter=SWITCH),
                _tagged("scroll", by=WHOLE),
            ]
        },
    },
)
LONG: Final = _object(
    ["text", "page", "done"], text={**TEXT, "maxLength": 100_000}, page=WHOLE, done=SWITCH, size=NUMBER, title=TEXT
)

STEPS: Final = [
    {"kind": "wait", "seconds": 1.5},
    {"kind": "click", "x": 10, "y": 20},
    {"kind": "type", "text": "hello", "enter": True},
    {"kind": "scroll", "by": -3},
]
GUEST: Final = {"name": "Ada", "email": "ada@example.org", "age": 36, "vip": True}
ROOM: Final = {"number": 42, "floor": 4, "beds": ["queen", "single"], "smoking": False}

# name -> (schema, valid body, the paths at which the fourfold wrong body holds an object)
CASES: Final[dict[str, tuple[dict[str, Any], Any, list[list[Any]]]]] = {
    "tiny": (
        TINY,
        {"city": "Berlin", "days": 3, "metric": True, "lat": 52.5},
        [["city"], ["days"], ["metric"], ["lat"]],
    ),
    "booking": (
        BOOKING,
        {
            "id": "b-17", "nights": 3, "paid": True, "price": 340.5, "currency": "EUR", "guest": GUEST, "room": ROOM,
            "notes": "late arrival, around eleven", "tags": ["web", "returning"],
        },
        [["nights"], ["guest", "name"], ["room", "number"], ["tags", 0]],
    ),
    "rows": (
        ROWS,
        {"rows": [{"id": n, "name": f"item {n}", "price": n + 0.5, "ok": n % 2 == 0} for n in range(200)]},
        [["rows", 10, "id"], ["rows", 60, "name"], ["rows", 110, "price"], ["rows", 199, "ok"]],
    ),
    "union": (
        UNION,
        {"steps": STEPS},
        [["steps", 0, "seconds"], ["steps", 1, "x"], ["steps", 2, "enter"], ["steps", 3, "by"]],
    ),
    "text": (
        LONG,
        {"text": 'She said "no", and left.\n' * 800, "page": 3, "done": False, "size": 2.5, "title": "Two"},
        [["page"], ["done"], ["size"], ["title"]],
    ),
}  # fmt: skip


def bodies(valid: Any, wrong: list[list[Any]]) -> dict[str, bytes]:
    """The three bodies of a pair: valid, with numbers and booleans as text, and with four values that nobody can
    coerce."""
    broken = copy.deepcopy(valid)
    for *steps, last in wrong:
        holder = broken
        for step in steps:
            holder = holder[step]
        holder[last] = {}
    return {
        name: json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        for name, body in (("valid", valid), ("damaged", _damaged(valid)), ("4 errors", broken))
    }


def _damaged(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _damaged(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_damaged(item) for item in value]
    return json.dumps(value) if isinstance(value, bool | int | float) else value
