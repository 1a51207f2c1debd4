"""The page `/-/calls`: lists the last calls with filters, shows one call in full, or sends calls as a stream of events.

A position in the ring of kept calls is written `BOOT.NUMBER`: the run of the process and the number of the call. With
several workers a position holds one such pair for each worker, joined by commas. Every answer has a `cursor`; a reader
sends it back as `after` to get only newer calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote

from proxy.core.display.secrets import MASK
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions.console.event_stream import follow_calls
from proxy.extensions.console.kept_calls import SEVERAL, SINGLE, SORTS, STAGES, CallFilter, select_calls, write_entry
from proxy.routing import Route
from proxy.server.admin.page import ConsoleData, EventPage, Page, PageRequest, Readers, make_json_page, refuse_question
from proxy.telemetry.ring import LONGEST_ARGUMENTS, KeptCall, make_entry

# --- the copies of a kept call ----------------------------------------------------------------------------------------
# The copies of a kept call: a curl command, a line for `replay`, a test case.
#
# All three need the arguments exactly as they came, so they are offered only if `admin.values: full` keeps them
# whole and nothing in them is masked. Otherwise `no_copy` says why, and what to switch on.

_READER: Final = "Only holders of `admin.token` see arguments, if `admin.values` keeps them."
_OFF: Final = "Arguments are not kept. To see and copy them, set `admin.values: full`."
_PREVIEW: Final = "These arguments are a preview, masked and cut. To copy the call, set `admin.values: full`."
_GONE: Final = (
    f"Its arguments are not kept: they were longer than {LONGEST_ARGUMENTS // 1024} kB, or newer ones took their room."
)
_MASKED: Final = "It cannot be copied: a secret in it is masked."
_NO_OBJECT: Final = "It cannot be copied: its arguments are no JSON object."
_CHANGED: Final = "It cannot be copied as a test: its schema is no longer served."
_UNSETTLED: Final = "It cannot be copied as a test: whether its arguments were right is not known."
# The outcomes of calls whose arguments the tool took.
_TAKEN: Final = frozenset({"delivered", "repaired", "corrected", "passthrough"})


def describe_copies(
    call: Mapping[str, Any], values: tuple[bytes, ...] | None, shown: str, *, is_operator: bool, routes: Iterable[Route]
) -> dict[str, JsonValue]:
    """Returns the data for the page's copies, or why there are none.

    `call` is the kept call's entry, `values` its arguments as JSON texts, as they came and as they were repaired,
    `shown` the setting `admin.values`. `sent` is the text of the arguments. `expected` is the JSON text of the right
    arguments on one line: those that the tool took, or null if the arguments broke the tool's rules. A call that was
    refused for another reason (a cap, a hook, a budget), that failed or was given up has no `expected`. `target` is the
    path of a request whose body is the arguments, and `replay` is true if the call's schema is still served.
    """
    if not is_operator:
        return {"no_copy": _READER}
    if shown != "full":
        return {"no_copy": _OFF if shown == "off" else _PREVIEW}
    if values is None:
        return {"no_copy": _GONE}
    came = parse(values[0])
    if isinstance(came, JsonProblem) or not isinstance(came, dict):
        return {"no_copy": _NO_OBJECT}
    if _is_masked(came):
        return {"no_copy": _MASKED}
    method, name, tool = call.get("http.request.method"), call["http.route"], str(call.get("gen_ai.tool.name", ""))
    route = next((one for one in routes if one.name == name and (method is None or method in one.methods)), None)
    if route is None:
        return {"no_copy": _CHANGED}
    found: dict[str, JsonValue] = {"sent": values[0].decode()}
    if target := _find_target(route, tool):
        found["target"] = target
    policy = route.tools.get(tool)
    if route.learn is None and (policy is None or policy.schema_id != call.get("schema_id")):
        return {**found, "no_copy": _CHANGED}
    return {**found, "replay": True, **_find_expected(call, values)}


def _find_expected(call: Mapping[str, Any], values: tuple[bytes, ...]) -> dict[str, JsonValue]:
    """The right arguments as `expected`, on one line, or why none are known. A line break of valid JSON is between
    tokens."""
    if call.get("would_refuse") or (call["outcome"] == "refused" and call.get("errors")):
        return {"expected": "null"}
    if call["outcome"] not in _TAKEN:
        return {"no_copy": _UNSETTLED}
    return {"expected": (values[1] or values[0]).decode().replace("\r", " ").replace("\n", " ")}


def _find_target(route: Route, tool: str) -> str:
    """Returns the path of a request whose whole body is the arguments; '' if the route has no such request."""
    shape = route.shape
    if route.adapter != "plain" or shape.operation is not None or shape.arguments_pointer is not None:
        return ""
    path = route.path.replace(f"{{{shape.tool_param}}}", quote(tool, safe="")) if shape.tool_param else route.path
    return "" if shape.tool_pointer is not None or "{" in path else path


def _is_masked(value: JsonValue) -> bool:
    """Returns whether a text of the value is the mask."""
    if isinstance(value, dict):
        return any(map(_is_masked, value.values()))
    return any(map(_is_masked, value)) if isinstance(value, list) else value == MASK


# --- the page `/-/calls` ----------------------------------------------------------------------------------------------
# The highest and the default number of entries in one answer (`limit`).
MOST_ENTRIES: Final = 500
_USUAL: Final = 200
_KNOWN: Final = frozenset({*SEVERAL, *SINGLE, "since", "after", "before", "limit", "changes", "sort"})
_SINCE: Final = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>ms|s|m|h|)")
_PLACE: Final = re.compile(r"[0-9]{1,15}|[^.,]+\.[0-9]{1,15}(,[^.,]+\.[0-9]{1,15})*")
# The order in which calls are listed: a column, with `-` before it the highest first.
USUAL_SORT: Final = "-time"
_UNITS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


async def list_calls(data: ConsoleData, question: PageRequest, readers: Readers) -> Page | EventPage:
    """Returns the kept calls, newest first, or a stream of the calls to come where the reader accepts events."""
    query = parse_qs(question.query, keep_blank_values=True)
    if question.wants_events and question.resume:
        query["after"] = [question.resume]
    call_filter = read_filter(query, data)
    if isinstance(call_filter, str):
        return refuse_question(call_filter)
    if question.wants_events:
        return EventPage(follow_calls(data, call_filter, _start(query, data), readers))
    limit = _read_limit(query)
    if limit is None:
        return refuse_question(f"`limit` is a number from 1 to {MOST_ENTRIES}")
    if _first(query, "sort").removeprefix("-") not in ("", *SORTS):
        return refuse_question(f"`sort` is one of: {', '.join(SORTS)}; put `-` before it for the highest first")
    return Page(_list_entries(data, call_filter, limit, query))


def _list_entries(data: ConsoleData, call_filter: CallFilter, limit: int, query: Mapping[str, list[str]]) -> bytes:
    """Returns the answer of `/-/calls` as JSON.

    The answer holds the entries, the `cursor` behind the newest one, and how many calls are kept (`kept`) and can be
    kept (`bound`). `missed` is the number of calls newer than `after` that are not in it: they are more than `limit`,
    or have left the ring. `older` is the position that a reader sends as `before` to get the calls that follow, if
    `has_older` says that there are some. With `changes` the answer also holds the proxy's changes since that position.
    """
    recent, continues, order = data.recent, bool(query.get("after")), _first(query, "sort") or USUAL_SORT
    usual = order == USUAL_SORT
    found = list(select_calls(recent, call_filter, None if continues or not usual else limit + 1))
    if not usual:
        found.sort(key=SORTS[order.removeprefix("-")][0], reverse=order.startswith("-"))
    more = len(found) > limit and usual
    shown: dict[str, JsonValue] = {
        "cursor": f"{recent.boot}.{recent.last}",
        "kept": recent.size,
        "bound": recent.bound,
        "sort": order,
        # With several workers, 1 is the position of a worker without older calls.
        "older": f"{recent.boot}.{found[limit - 1].seq if more else 1}",
        "has_older": more,
        "missed": count_missed(data, call_filter.after) + len(found[limit:]) if continues else 0,
    }
    if "changes" in query:
        seen = read_place(query["changes"][0], data.recent.boot) or 0
        shown["changes"] = [{"event": each.event, "at": each.at, **each.data} for each in data.changes.after(seen)]
        shown["changes_cursor"] = f"{recent.boot}.{data.changes.last}"
    entries = b",".join([write_entry(recent, kept) for kept in found[:limit]])
    return b'{"calls":[%b],%b\n' % (entries, dumps(shown)[1:])


async def show_call(data: ConsoleData, question: PageRequest, routes: Iterable[Route] = ()) -> Page:
    """Shows one call in full. `routes` are those that are served now."""
    place = unquote(question.rest)
    seq = read_place(place, data.recent.boot) if "." in place else _number(place)
    kept = next((each for each in data.recent.newest() if each.seq == seq), None)
    if kept is None:
        return refuse_question(f"no call {place[:64]!r} is kept (any more)", 404)
    is_operator = question.role == "operator"
    shown = open_call(data, kept, with_values=is_operator)
    values = data.recent.values.read(kept.seq) if data.recent.values is not None else None
    copies = describe_copies(shown, values, data.values, is_operator=is_operator, routes=routes)
    return make_json_page({**shown, **copies})


def open_call(data: ConsoleData, kept: KeptCall, *, with_values: bool) -> dict[str, JsonValue]:
    """Returns everything known about a kept call, and its arguments if they are kept and `with_values` allows it."""
    shown: dict[str, JsonValue] = {"id": f"{data.recent.boot}.{kept.seq}", **make_entry(kept)}
    shown["stages_ms"] = {name: round(kept.stages[name] * 1000, 3) for name in STAGES if name in kept.stages}
    if kept.failure is not None and (text := kept.failure.compose_answer()):
        shown |= {"model_read": text, "masked": True}
    shown["values"] = data.values if with_values else "off"
    values = data.recent.values.read(kept.seq) if data.recent.values is not None and with_values else None
    if values is not None:
        names = ("came", "went", "model_read")
        shown |= {name: _read_value(text) for name, text in zip(names, values, strict=False) if text}
        if values[2]:
            shown.pop("masked", None)
        if kept.failure is not None and kept.failure.replaced:
            shown["replaced"] = _add_values(kept.failure.replaced, iter(values[3:]))
    return shown


def _add_values(answers: Iterable[Mapping[str, Any]], came: Iterator[bytes]) -> list[JsonValue]:
    """A model's replaced answers, with the arguments of their calls from `came`, in the same order."""

    def add(call: Mapping[str, Any]) -> dict[str, JsonValue]:
        text = next(came)
        return {**call, "came": _read_value(text)} if text else {**call}

    return [{**answer, "calls": [add(call) for call in answer["calls"]]} for answer in answers]


def _read_value(text: bytes) -> JsonValue:
    value = parse(text)
    return text.decode("utf-8", "replace") if isinstance(value, JsonProblem) else value


# --- the query --------------------------------------------------------------------------------------------------------
def read_filter(query: Mapping[str, list[str]], data: ConsoleData) -> CallFilter | str:
    """Returns the filter that a query describes, or a text about the mistake in the query."""
    for name in query:
        if name not in _KNOWN:
            return f"`{name[:40]}` is not a filter; the filters are: {', '.join(sorted(_KNOWN))}"
    found: dict[str, Any] = {name: frozenset(filter(None, query.get(name, ()))) for name in SEVERAL}
    found |= {name: query[name][0] for name in SINGLE if name in query}
    if text := _first(query, "since"):
        seconds = _read_since(text)
        if seconds is None:
            return "`since` is a duration such as 10m, or seconds since the epoch"
        found["since"] = seconds if seconds > 1e9 else data.wall() - seconds
    for name in ("after", "before"):
        if text := _first(query, name):
            if _PLACE.fullmatch(text) is None:
                return f"`{name}` is a number, or the `cursor` of an answer"
            place = read_place(text, data.recent.boot) if "." in text else _number(text)
            found[name] = place or 0
    return CallFilter(**found)


def read_place(text: str, boot: str) -> int | None:
    """Returns the number that a position holds for this run of the process, or None where it holds none."""
    for pair in text.split(","):
        run, _, number = pair.partition(".")
        if run == boot:
            return _number(number)
    return None


def count_missed(data: ConsoleData, after: int) -> int:
    """Counts the calls that left the ring before a reader at position `after` could see them."""
    return max(0, min(data.recent.oldest, data.recent.last) - after - 1) if data.recent.oldest else 0


def _start(query: Mapping[str, list[str]], data: ConsoleData) -> int | None:
    """Returns the position behind which a stream begins: the one in `after`, or the newest call without `after`.

    None means that `after` belongs to another run of the process.
    """
    text = _first(query, "after")
    if not text:
        return data.recent.last
    return read_place(text, data.recent.boot) if "." in text else _number(text)


def _first(query: Mapping[str, list[str]], name: str) -> str:
    return query.get(name, [""])[0]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 16 else None


def _read_since(text: str) -> float | None:
    found = _SINCE.fullmatch(text)
    return float(found["number"]) * _UNITS[found["unit"]] if found is not None else None


def _read_limit(query: Mapping[str, list[str]]) -> int | None:
    text = _first(query, "limit")
    if not text:
        return _USUAL
    number = _number(text)
    return number if number is not None and 1 <= number <= MOST_ENTRIES else None
