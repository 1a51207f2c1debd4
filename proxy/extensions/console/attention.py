"""The matters that need an operator's attention, made from the overview's other fields."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from proxy.core.model.values import JsonValue

# Above this share of calls whose conversation is known by the client's address only, the overview asks for an id.
_MANY_BY_ADDRESS: Final = 0.30
_FEW: Final = 20
# A tool is named from so many failed calls on, and from this share of its calls on.
_LEAST_FAILED: Final = 3
_MANY_FAILED: Final = 0.10
_LEAST_ERRORS: Final = 5
_MANY_ERRORS: Final = 0.50
# The needs made from numbers: with several workers they are made again from the sums.
COUNTED: Final = frozenset({"upstream", "failing", "tool_errors", "address"})

Need = dict[str, JsonValue]
Shown = Mapping[str, Any]


def list_needs(shown: Shown) -> list[Need]:
    """Returns what needs attention. `page` is the console's page about it."""
    return [*count_needs(shown), *_list_states(shown)]


def count_needs(shown: Shown) -> Iterator[Need]:
    """Yields what the numbers of a window say: failing upstreams and tools, and conversations without an id."""
    yield from _list_failing(shown["tools"], shown["window"])
    for row in shown["tools"]:
        errors, calls = row["outcomes"].get("tool_error", 0), row["calls"]
        if errors >= _LEAST_ERRORS and errors >= calls * _MANY_ERRORS:
            text = f"tool `{row['tool']}`: {errors} of {calls} calls ended in an error of the tool"
            yield {"what": "tool_errors", "text": text, "page": _link_calls(row, "tool_error", shown["window"])}
    calls, of = shown["by_address"]["calls"], shown["by_address"]["of"]
    if of >= _FEW and calls > of * _MANY_BY_ADDRESS:
        text = f"{100 * calls // of} % of calls are known only by their address: send X-Conversation-Id"
        yield {"what": "address", "text": text, "page": "#/conversations"}


def _list_failing(rows: Iterable[Shown], window: str) -> Iterator[Need]:
    """Yields one line for each failing tool; one line for all of them if they have the same upstream."""
    failing: defaultdict[str, list[Shown]] = defaultdict(list)
    for row in rows:
        failed = row["outcomes"].get("upstream_error", 0)
        if failed >= _LEAST_FAILED and failed >= row["calls"] * _MANY_FAILED:
            failing[row["upstream"] or f"{row['route']} {row['tool']}"].append(row)
    for upstream, same in failing.items():
        failed, calls = sum(row["outcomes"]["upstream_error"] for row in same), sum(row["calls"] for row in same)
        errors: Counter[str] = Counter()
        for row in same:
            errors.update(row["failures"])
        why = f" ({', '.join(error for error, _ in errors.most_common(2))})" if errors else ""
        numbers = f"{failed} of {calls} calls failed{why}"
        if len(same) > 1:
            text = f"upstream `{upstream}`: {numbers}, at {len(same)} tools"
            yield {"what": "upstream", "text": text, "page": "#/upstreams"}
        else:
            text = f"tool `{same[0]['tool'] or same[0]['route']}`: {numbers}"
            yield {"what": "failing", "text": text, "page": _link_calls(same[0], "upstream_error", window)}


def _link_calls(row: Shown, outcome: str, window: str) -> str:
    query = {"since": window, "route": row["route"], "tool": row["tool"], "outcome": outcome}
    return f"#/calls?{urlencode({name: value for name, value in query.items() if value})}"


def _list_states(shown: Shown) -> Iterator[Need]:
    """Yields what the state of the proxy says."""
    if shown.get("status") == "draining":
        yield {"what": "draining", "text": "the proxy is draining", "page": "#/overview"}
    for mistake in shown.get("config_mistakes", ())[:1]:
        text = f"a changed config has an error and is not in use: {mistake}"
        yield {"what": "config", "text": text, "page": "#/config"}
    for section in shown.get("restart_needed", ()):
        yield {"what": "restart", "text": f"`{section}` needs a restart", "page": "#/config"}
    for name, state in shown.get("breakers", {}).items():
        if state != "closed":
            text = f"the breaker of `{name}` is {state.upper()}"
            yield {"what": "breaker", "text": text, "page": "#/upstreams"}
    for each in shown.get("unpinned", ()):
        name, change = f"tool `{each['tool']}` of `{each['route']}`", each["change"]
        text = f"{name} is not defined as pinned: {change}. To approve it: {each['approve']}"
        yield {"what": "pins", "text": text, "page": "#/overview"}
    waiting = shown.get("conversations_waiting", 0)
    if waiting:
        text = f"{waiting} conversation{'s wait' if waiting > 1 else ' waits'} for a human"
        yield {"what": "waiting", "text": text, "page": "#/conversations?waiting=true"}
