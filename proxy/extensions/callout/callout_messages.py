"""Questions to call-out services, and their answers. Both have a published schema (`schemas/callout/`), and an answer
counts only if it fits: strict JSON without duplicate keys, of bounded depth, with no member too many.

A question holds the text of arguments and answers unchanged, so that no number changes its digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, Final

from proxy.call_record import CallRecord
from proxy.core.contract.attempts import hash_name
from proxy.core.display.secrets import MASK
from proxy.core.json.contentcoding import decode, is_coded
from proxy.core.json.jsonspan import replace_values
from proxy.core.json.jsontext import dumps, find_at_pointer, parse, parse_pointer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, CheckedCall, Headers, JsonProblem, JsonValue, Pointer, UpstreamReply
from proxy.extensions.callout.callout_section import CalloutPoint, CalloutSettings
from proxy.plugin import Check, compile_check, list_violations

_VERSION: Final = 1
# A line of server-sent events with data; a message of MCP takes one.
_DATA: Final = re.compile(rb"^data:[ ]?([^\r\n]*)", re.MULTILINE)


# --- questions --------------------------------------------------------------------------------------------------------
@value_class
class ShownCall:
    """The parts of a call that a service sees beside its arguments. `headers` are all of the client's."""

    route: str
    request_id: str
    caller: Mapping[str, str] = field(repr=False)
    headers: Headers = field(repr=False)


def show_call(record: CallRecord, headers: Headers) -> ShownCall:
    """Returns what a service sees of a call; of its caller the same as the audit."""
    token = record.notes.get("client.token", "")
    caller = {"token": token} if record.access is None else record.access.caller
    return ShownCall(record.route, record.request_id, caller, headers)


@value_class
class ShownAnswer:
    """A tool's whole answer without its content coding. Of an answer that is JSON, `value` is the meaning of the bytes
    from `start` to `end`: all of them, or the last result among server-sent events."""

    status: int
    content_type: str
    text: bytes = field(repr=False)
    value: JsonValue = field(default=ABSENT, repr=False)
    start: int = 0
    end: int = 0


def read_shown(reply: UpstreamReply, limit: int) -> ShownAnswer | None:
    """A tool's answer as it is shown; None for one that is not whole, too long, or in an unknown coding."""
    body, coding = reply.body, reply.header("content-encoding")
    text = decode(body, coding, limit) if isinstance(body, bytes) and is_coded(coding) else body
    if not isinstance(text, bytes) or len(text) > limit:
        return None
    content_type = reply.header("content-type")
    media_type = content_type.partition(";")[0].strip().lower()
    spans = [(0, len(text))] if media_type == "application/json" or media_type.endswith("+json") else []
    if media_type == "text/event-stream":
        spans = [found.span(1) for found in _DATA.finditer(text)]
    for start, end in reversed(spans):
        value = parse(text[start:end])
        is_result = len(spans) == 1 or (isinstance(value, dict) and not value.keys().isdisjoint(("result", "error")))
        if is_result and not isinstance(value, JsonProblem):
            return ShownAnswer(reply.status, content_type, text, value, start, end)
    return ShownAnswer(reply.status, content_type, text)


def write_question(
    settings: CalloutSettings,
    point: CalloutPoint,
    shown: ShownCall,
    checked: CheckedCall,
    answer: ShownAnswer | None = None,
) -> bytes:
    """The body of one question."""
    call = checked.call
    about: dict[str, JsonValue] = {
        "route": shown.route,
        "tool": _clean(call.tool),
        "call_id": _clean(call.call_id),
        "request_id": _clean(shown.request_id),
        "conversation": hash_name(call.conversation),
        "caller": {name: _clean(value) for name, value in shown.caller.items()},
        "headers": _select_headers(settings, shown.headers),
        "path": {name: _clean(value) for name, value in call.params.items()},
        "query": _clean(call.query),
    }
    is_json = checked.value is not ABSENT
    arguments = checked.arguments or b"null" if is_json else dumps(checked.arguments.decode("utf-8", "replace"))
    text = _add_member(dumps(about), "arguments" if is_json else "text", arguments)
    question = dumps({"version": _VERSION, "event": point.value})
    question = _add_member(question, "call", text)
    return question if answer is None else _add_member(question, "answer", _write_answer(answer))


def _write_answer(answer: ShownAnswer) -> bytes:
    head = dumps({"status": answer.status, "content_type": _clean(answer.content_type)})
    if answer.value is ABSENT:
        return _add_member(head, "text", dumps(answer.text.decode("utf-8", "replace")))
    return _add_member(head, "value", answer.text[answer.start : answer.end])


def _add_member(text: bytes, name: str, value: bytes) -> bytes:
    """A written object that is not empty, with one more member, whose value is JSON already."""
    return b"%b,%b:%b}" % (text[:-1], dumps(name), value)


def _select_headers(settings: CalloutSettings, headers: Headers) -> dict[str, JsonValue]:
    found = {name: [value for key, value in headers if key == name] for name in settings.headers}
    return {name: _clean(", ".join(values)) for name, values in found.items() if values}


def _clean(text: str) -> str:
    """A text without the lone surrogates that bytes other than UTF-8 leave behind in headers: JSON has none."""
    return text.encode("utf-8", "replace").decode()


# --- answers ----------------------------------------------------------------------------------------------------------
@value_class
class CalloutAnswer:
    """The decision of a service: its `action`, and the members that belong to it."""

    action: str
    message: str = ""
    hint: str = ""
    retryable: bool = False
    arguments: JsonValue = field(default=ABSENT, repr=False)
    paths: tuple[str, ...] = ()


def read_callout_answer(body: bytes, point: CalloutPoint) -> CalloutAnswer | str:
    """The answer of a service; otherwise the reason why it does not count, which quotes nothing of it."""
    value = parse(body)
    if isinstance(value, JsonProblem):
        return f"not strict JSON: line {value.line}, column {value.column}"
    check = _compile_schema(point)
    if not check.accepts(value):
        broken = sorted({each.code.name for each in list_violations(check, value, ())})
        return f"does not fit {point}.schema.json: {', '.join(broken)}"
    members: dict[str, Any] = {name: tuple(each) if name == "paths" else each for name, each in value.items()}
    return CalloutAnswer(**members)


@cache
def _compile_schema(point: CalloutPoint) -> Check:
    schema = parse((Path(__file__).parent / f"{point}.schema.json").read_bytes())
    check = compile_check(schema)
    check.prepare(everywhere=False)
    return check


def prepare_answers() -> None:
    """Compiles the schemas of the answers."""
    for point in CalloutPoint:
        _compile_schema(point)


def mask_answer(reply: UpstreamReply, answer: ShownAnswer, paths: tuple[str, ...]) -> UpstreamReply | None:
    """Returns the tool's answer with the values at these places masked and every other byte unchanged. None if the
    answer is not JSON or lacks one of the places."""
    if answer.value is ABSENT:
        return None
    try:
        places = {_find_place(answer.value, parse_pointer(path)) for path in paths}
        outermost = [path for path in places if not any(path[:length] in places for length in range(len(path)))]
        text = answer.text[answer.start : answer.end]
        masked = replace_values(text, dict.fromkeys(outermost, dumps(MASK)))
    except (LookupError, ValueError):
        return None
    return reply.with_body(answer.text[: answer.start] + masked + answer.text[answer.end :])


def _find_place(value: JsonValue, path: Pointer) -> Pointer:
    """The steps of a place that is there, with the index of an array as a number. Raises LookupError."""
    steps: list[str | int] = []
    for step in path:
        steps.append(int(step) if isinstance(value, list) and str(step).isdecimal() else step)
        value = find_at_pointer(value, (step,))
    return tuple(steps)
