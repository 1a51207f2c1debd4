"""One recorded call as a line of JSON: written by `write_line`, read by `read_line`.

    {"v":1,"at":...,"route":...,"tool":...,"sent":"{...}","masked":["/text"],"schema_id":...,"config":...,
     "fate":{"decision":"reject","repairs":[],"errors":[["VAL-010","/at"]]},"attempt":1,"outcome":"refused"}

`sent` is the text of the arguments as they came, or with stand-ins at `masked`; `"lost": true` stands in its place
where no stand-in keeps the verdict, or the arguments are too long.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.adapters.base import CallShape
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.standins import stand_in
from proxy.core.fates import Fate
from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.recording.judging import judge_sent

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """What a line says. `sent` is None where the call is lost."""

    route: str
    tool: str
    sent: bytes | None = field(repr=False)
    masked: tuple[str, ...]
    fate: Fate
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)


def write_line(
    told: Mapping[str, JsonValue], sent: bytes, shape: CallShape, policy: ToolPolicy, *, whole: bool, longest: int
) -> bytes:
    """The line of one call. `told` are its further fields; `whole`: arguments as they are, secrets of the schema aside;
    otherwise with stand-ins."""
    fate = judge_sent(sent, shape, policy)
    row: dict[str, JsonValue] = {"v": VERSION, **told, "fate": show_fate(fate)}
    if len(sent) > longest:
        return dumps(row | {"lost": True}) + b"\n"
    found = _mask(sent, fate, shape, policy, secrets_alone=whole)
    if found is None:
        return dumps(row | {"lost": True}) + b"\n"
    return dumps(row | {"sent": found[0].decode("utf-8", "replace"), "masked": list(found[1])}) + b"\n"


def _mask(
    sent: bytes, fate: Fate, shape: CallShape, policy: ToolPolicy, *, secrets_alone: bool
) -> tuple[bytes, tuple[str, ...]] | None:
    value = parse(sent)
    if isinstance(value, JsonProblem):  # no text of it can be told from its structure
        return (sent, ()) if secrets_alone and not policy.feedback.secret_names else None
    known = (fate.forwarded, fate.repairs, fate.errors, fate.code)

    def is_same(changed: JsonValue) -> bool:
        other = judge_sent(dumps(changed), shape, policy)
        return known == (other.forwarded, other.repairs, other.errors, other.code)

    found = stand_in(value, policy.feedback, is_same, secrets_alone=secrets_alone) if is_same(value) else None
    if found is None:
        return None
    return dumps(found.value) if found.masked else sent, tuple(format_pointer(path) for path in found.masked)


def show_fate(fate: Fate) -> dict[str, JsonValue]:
    """A fate as a line holds it."""
    return {
        "decision": "forward" if fate.forwarded else "reject",
        "repairs": [list(each) for each in fate.repairs],
        "errors": [list(each) for each in fate.errors],
    }


def read_line(line: bytes) -> RecordedLine | str:
    """What a line says, or why it is no recorded call."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    if not isinstance(found, dict) or found.get("v") != VERSION or not isinstance(found.get("fate"), dict):
        return 'a recorded call is wanted: {"v": 1, "route": ..., "tool": ..., "sent": ..., "fate": ...}'
    sent, fate = found.get("sent"), found["fate"]
    if sent is not None and not isinstance(sent, str):
        return "'sent' must be the text of the arguments"
    return RecordedLine(
        str(found.get("route", "")),
        str(found.get("tool", "")),
        None if sent is None else sent.encode("utf-8", "surrogatepass"),
        tuple(map(str, found.get("masked", ()))),
        Fate(
            fate.get("decision") == "forward",
            repairs=tuple((str(rule), str(path)) for rule, path in fate.get("repairs", ())),
            errors=tuple((str(code), str(path)) for code, path in fate.get("errors", ())),
        ),
        found,
    )


def differs(recorded: Fate, judged: Fate) -> bool:
    """Whether a call is judged otherwise than when it was recorded."""
    told = (recorded.forwarded, recorded.repairs, recorded.errors)
    return told != (judged.forwarded, judged.repairs, judged.errors)
