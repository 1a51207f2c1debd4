"""The tool's own words: what an error body says, verbatim, one line for each error of a list.

Tools list several errors at once in many forms: GraphQL and JSON:API `errors`, Google's `fieldViolations`, FastAPI's
`detail`, Spring's `fieldErrors`, maps from fields to sentences (Rails, Django, ASP.NET). Each entry becomes one line:
its place, its words as they are, and the data beside them that helps. Members that repeat the request, or serve only a
debugger, are left out. A body that has no list gives its own sentence, and a plain text its lines.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final

from proxy.core.display.graphemes import cut_sentences
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue

# Code points of all lines together, of one line, and of one member of an entry's data.
MOST_WORDS: Final = 1500
_LONGEST_LINE: Final = 600
_LONGEST_DATA: Final = 300
_MOST_ENTRIES: Final = 60
_DEEPEST: Final = 6

# Keys under which an error body keeps its words, most specific first: GoMind, RFC 9457, FastAPI, Django, plain.
WORDS_AT: Final = ("message", "detail", "error_description", "error", "title", "errors")
# The words of one entry, best first, and what may be before them.
_ENTRY_WORDS: Final = ("detail", "message", "msg", "defaultMessage", "description", "reason", "error", "errorMessage",
                       "developerMessage", "text", "title")  # fmt: skip
# The members that say as much as words if an entry has none.
_ENTRY_RULES: Final = ("code", "rule", "errorCode", "type", "kind", "keyword")
_ENTRY_PLACES: Final = ("loc", "instancePath", "dataPath", "source", "path", "field", "pointer", "param", "parameter",
                        "property", "propertyPath", "propertyName", "fieldName", "attribute", "location",
                        "name")  # fmt: skip
# Keys beside a single error's words that name its field.
_NAMED_AT: Final = ("param", "field", "parameter", "property", "pointer")
# The keys of lists and maps of errors.
_HOLDERS: Final = frozenset(
    ["errors", "message", "error", "detail", "details", "violations", "issues", "messages", "fielderrors",
     "fieldviolations", "invalidparams", "validationerrors", "errormessages", "failures", "suberrors", "fields",
     "constraintviolations", "globalerrors", "errordetails", "innererrors"]
)  # fmt: skip
# Members of an entry that repeat the request, lead elsewhere, or serve only a debugger.
_LEFT_OUT: Final = frozenset(
    ["input", "rejectedvalue", "received", "value", "attemptedvalue", "invalidvalue", "target", "targetproperty",
     "bindingfailure", "objectname", "codes", "arguments", "locations", "links", "help", "helpurl", "url", "docs",
     "stack", "stacktrace", "trace", "traceid", "exception", "timestamp", "status", "statuscode", "id", "instance",
     "schemapath", "keyword", "domain", "type", "code", "kind", "children", "abortearly", "@type", "context", "data",
     "severity", "formattedmessageplaceholdervalues", "formattedmessagearguments", "resourcename", "contexts"]
)  # fmt: skip
# Objects in an entry whose members are its data.
_DATA: Final = frozenset(["extensions", "ctx", "params", "meta", "metadata"])
# Names of statuses that are as a summary above a list.
_STATUSES: Final = frozenset(["bad request", "unprocessable entity", "unprocessable content", "conflict", "not found"])
_TAG: Final = re.compile(r"<(?:script|style)\b[\s\S]{0,20000}?</(?:script|style)>|<[^<>]{0,300}>", re.IGNORECASE)
_LONGEST_PAGE: Final = 300


def list_own_words(value: JsonValue, text: bytes) -> list[str]:
    """The words of an error body, one line each: `value` is its JSON (None without), `text` the body itself."""
    if not isinstance(value, (dict, list)):
        words = text.decode("utf-8", "replace")
        if words.lstrip()[:9].lower().startswith(("<!doctype", "<html")):
            words = cut_sentences(" ".join(html.unescape(_TAG.sub(" ", words)).split()), _LONGEST_PAGE)
        return [line for line in (" ".join(line.split()) for line in words.splitlines()) if line][:_MOST_ENTRIES]
    head = _read_sentence(value)
    entries = list(_list_entries(value, 0))
    if not head and not entries and isinstance(value, dict) and _is_map(value):
        entries = list(_read_map(value, "", 0))
    # A summary whose words an entry repeats, or that is only the name of the status, is no separate line.
    is_news = head and not any(head in entry for entry in entries) and not (entries and head.lower() in _STATUSES)
    lines = list(dict.fromkeys([head, *entries] if is_news else entries))[:_MOST_ENTRIES]
    return lines or [" ".join(text.decode("utf-8", "replace").split())]


def join_words(lines: list[str]) -> str:
    """The lines as one text of at most `MOST_WORDS` code points, cut between lines, else behind a sentence."""
    kept: list[str] = []
    room = MOST_WORDS - len("(+100 more)")
    for line in lines:
        shown = cut_sentences(line, _LONGEST_LINE if len(lines) > 1 else room)
        if kept and len(shown) > room:
            break
        kept.append(shown)
        room -= len(shown) + 1
    if left := len(lines) - len(kept):
        kept.append(f"(+{left} more)")
    return "\n".join(kept)


def _read_sentence(value: JsonValue) -> str:
    """The first text under one of the keys where error bodies keep their words; '' without one."""
    if not isinstance(value, dict):
        return ""
    for name in WORDS_AT:
        item = value.get(name)
        if isinstance(item, str) and item.strip():
            words = " ".join(item.split())
            place = next((value[key] for key in _NAMED_AT if isinstance(value.get(key), str)), "")
            return words if place in words else f"{place}: {words}"
        if isinstance(item, dict) and (inner := _read_sentence(item)):
            return inner
    return ""


# --- lists and maps of errors -----------------------------------------------------------------------------------------
def _list_entries(value: JsonValue, depth: int) -> Iterator[str]:
    """The entries of every list and map of errors in a body, outermost first."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value[:_MOST_ENTRIES]:
            yield from _list_entries(item, depth + 1) if isinstance(item, list) else _read_entry(item, depth)
        return
    for key, item in value.items() if isinstance(value, dict) else ():
        if _fold(key) not in _HOLDERS:
            continue
        if isinstance(item, dict) and _is_map(item) and not _read_sentence(item):
            yield from _read_map(item, "", depth + 1)
        else:
            yield from _list_entries(item, depth + 1)


def _is_map(value: dict[str, JsonValue]) -> bool:
    """Returns whether an object leads from fields to sentences about them."""
    return bool(value) and all(
        isinstance(item, dict) or _is_words(item) or (isinstance(item, list) and all(map(_is_words, item)))
        for item in value.values()
    )


def _is_words(value: JsonValue) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("message"), str))


def _read_map(value: dict[str, JsonValue], place: str, depth: int) -> Iterator[str]:
    for key, item in list(value.items())[:_MOST_ENTRIES]:
        below = f"{place}.{key}" if place else key
        if isinstance(item, dict) and depth <= _DEEPEST and not isinstance(item.get("message"), str):
            yield from _read_map(item, below, depth + 1)
            continue
        for entry in item if isinstance(item, list) else [item]:
            words = entry.get("message") if isinstance(entry, dict) else entry
            if isinstance(words, str) and words.strip():
                yield f"{below}: {' '.join(words.split())}"


def _read_entry(entry: JsonValue, depth: int) -> Iterator[str]:
    if isinstance(entry, str) and entry.strip():
        yield " ".join(entry.split())
    if not isinstance(entry, dict):
        return
    words = _first_text(entry, _ENTRY_WORDS)
    if not words and not any(_fold(key) in _HOLDERS for key in entry):
        words = _first_text(entry, _ENTRY_RULES)
    if words:
        title = _first_text(entry, ("title",))
        words = words if title in words else f"{title.rstrip('.')}. {words}"  # JSON:API has both
        place_key, place = _find_place(entry)
        data = ", ".join(_list_data(entry, {place_key}))
        yield f"{f'{place}: ' if place and place != words else ''}{words}{f' ({data})' if data else ''}"
    yield from _list_entries({key: item for key, item in entry.items() if isinstance(item, (dict, list))}, depth + 1)


def _first_text(entry: dict[str, JsonValue], keys: tuple[str, ...]) -> str:
    texts = (item for key in keys if isinstance(item := entry.get(key), str) and item.strip())
    return " ".join(next(texts, "").split())


def _find_place(entry: dict[str, JsonValue]) -> tuple[str, str]:
    """Returns the key of an entry's place, and the place as text; ('', '') without one."""
    for key in _ENTRY_PLACES:
        item = entry.get(key)
        if key == "name" and not isinstance(entry.get("reason"), str):
            continue
        if isinstance(item, dict) and key == "source":
            item = next((item[name] for name in ("pointer", "parameter", "header") if name in item), None)
        if isinstance(item, str) and item.strip():
            return key, " ".join(item.split()).lstrip("#/")
        if isinstance(item, list) and item and all(isinstance(step, (str, int)) for step in item):
            return key, ".".join(map(str, item))
    return "", ""


def _list_data(entry: dict[str, JsonValue], taken: set[str]) -> Iterator[str]:
    """The data of an entry that helps, as `name: value`."""
    for key, item in entry.items():
        if key in taken or key in _ENTRY_WORDS or _fold(key) in _LEFT_OUT or _fold(key) in _HOLDERS:
            continue
        if _fold(key) in _DATA and isinstance(item, dict):
            yield from _list_data({name: inner for name, inner in item.items() if name != "message"}, set())
            if isinstance(code := item.get("code"), str):
                yield f"code: {code}"
        elif item not in (None, "", [], {}):
            shown = item if isinstance(item, str) else dumps(item).decode("utf-8", "replace")
            if len(shown) <= _LONGEST_DATA:
                yield f"{key}: {' '.join(shown.split())}"


def _fold(key: str) -> str:
    return "".join(character for character in key.lower() if character.isalnum() or character == "@")
