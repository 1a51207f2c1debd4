"""What a schema says of a place in its own words: `x-hint`, else description, examples and default.

Only values that the place takes are shown: a default that the schema itself refuses would be false advice. Keys that
the schema calls deprecated give warnings, which block nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.graphemes import cut
from proxy.core.display.preview import clean_text
from proxy.core.explain.expectation import list_limits, write_literal
from proxy.core.explain.misplaced import walk_places
from proxy.core.json.jsontext import name_json_type
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import ABSENT, JsonValue, Violation
from proxy.core.model.work import EXPLAINING, TooMuchWorkError, Work, borrow_work
from proxy.core.rules.facts import applies_always, read_facts
from proxy.core.schema.nodes import Node

# Code points of a value that stands in a sentence.
_SHORT: Final = 60
_OWN: Final = 80
_EXAMPLES: Final = 2
_MOST_NOTICES: Final = 100


def add_own_words(violation: Violation, node: Node) -> Violation:
    """The violation with what the schema says of the property before anything generic: `x-hint`, else description,
    examples and default."""
    if violation.code is codes.REQUIRED_MISSING:
        declared = find_declared(node, str(violation.path[-1])) if violation.path else None
        if declared is None:
            return violation
        node = declared
    if violation.code is codes.ENUM_MISMATCH and violation.hint.startswith("Did you mean"):
        return violation  # which says it all
    own = read_own_words(node)
    said = own if violation.hint and own.endswith(violation.hint) else f"{own} {violation.hint}".strip()
    return replace(violation, hint=said) if own else violation


def read_own_words(node: Node) -> str:
    """What the schema says of a place in its own words, in at most three short sentences; '' where it says nothing."""
    memo: dict[int, str] = node.schemas.memos.setdefault("own words", {})
    said = memo.get(id(node))
    if said is None:
        said = memo[id(node)] = _own_words(node)
    return said


def _own_words(node: Node) -> str:
    parts = list(applies_always(node))
    hint = next((text for part in parts if isinstance(text := part.get("x-hint"), str) and text.strip()), "")
    if hint:
        return _sentence(cut(" ".join(hint.split()), _OWN * 2))
    if is_sensitive(node):
        return ""
    description = next((text for part in parts if isinstance(text := part.get("description"), str)), "")
    told = [_sentence(cut(" ".join(description.split()), _OWN))] if description.strip() else []
    written = next((shown for part in parts if isinstance(shown := part.get("examples"), list) and shown), [])
    examples = [example for example in written if may_take(node, example)]
    if examples:
        shown = ", ".join(cut(write_literal(example), _SHORT) for example in examples[:_EXAMPLES])
        told.append(f"For example {shown}.")
    default = next((part.get("default") for part in parts if part.has("default")), None)
    if default is not None and not examples and may_take(node, default):
        told.append(f"Its default is {cut(write_literal(default), _SHORT)}.")
    return " ".join(told)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "...")) else text + "."


def is_sensitive(node: Node) -> bool:
    """Whether a schema marks its values as secret."""
    return node.get("writeOnly") is True or node.get("format") == "password" or node.get("x-sensitive") is True


def may_take(node: Node, value: JsonValue) -> bool:
    """Whether a value of the schema's own (a default, an example) is of a type that the place takes, and among the
    values that it lists."""
    site = read_facts(node).site
    return name_json_type(value) in site.types and (site.choices is None or value in site.choices)


def write_default(member: Node) -> str:
    """A hint with a property's default, where that is a plain value which the property takes; else ''."""
    default = member.get("default")
    if isinstance(default, dict | list) or default is None or default is ABSENT or is_sensitive(member):
        return ""
    if not may_take(member, default) or list_limits(member):
        return ""
    return f"Its default is {cut(write_literal(default), _SHORT)}." if len(write_literal(default)) <= _SHORT else ""


def find_declared(node: Node, name: str) -> Node | None:
    """The schema of a property that an object declares."""
    return next((part.properties[name] for part in applies_always(node) if name in part.properties), None)


def takes_nothing(node: Node) -> bool:
    """Whether a place lists values of which none is of a type that it takes."""
    choices = read_facts(node).site.choices
    return choices is not None and not any(may_take(node, choice) for choice in choices)


# --- what a schema accepts and yet warns of ---------------------------------------------------------------------------
def list_notices(check: Check, value: JsonValue) -> Iterator[Violation]:
    """A warning for each key that the schema calls deprecated; at most 100, none where there is too much to search."""
    if check.schemas.mentions("deprecated"):
        try:
            with borrow_work(EXPLAINING) as work:
                yield from islice(_deprecated_at(check, value, work), _MOST_NOTICES)
        except TooMuchWorkError:
            return


def _deprecated_at(check: Check, value: JsonValue, work: Work) -> Iterator[Violation]:
    for place in walk_places(check, value, work):
        marked = next((part for part in place.parts if part.get("deprecated") is True), None)
        if place.path and marked is not None:
            message = f"Field '{clean_text(str(place.path[-1]), 60)}' is deprecated"
            hint = read_own_words(marked)
            yield Violation(codes.DEPRECATED_FIELD, place.path, message, hint=hint, severity=Severity.WARNING)
