"""Warnings about what a schema accepts: keys that it calls deprecated. They block nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.preview import clean_text
from proxy.core.explain.misplaced import walk_places
from proxy.core.explain.own_words import read_own_words
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import JsonValue, Violation
from proxy.core.model.work import EXPLAINING, TooMuchWorkError, Work, borrow_work

_MOST: Final = 100


def list_notices(check: Check, value: JsonValue) -> Iterator[Violation]:
    """A warning for each key that the schema calls deprecated; at most 100, none where there is too much to search."""
    if check.schemas.mentions("deprecated"):
        try:
            with borrow_work(EXPLAINING) as work:
                yield from islice(_deprecated_at(check, value, work), _MOST)
        except TooMuchWorkError:
            return


def _deprecated_at(check: Check, value: JsonValue, work: Work) -> Iterator[Violation]:
    for place in walk_places(check, value, work):
        marked = next((part for part in place.parts if part.get("deprecated") is True), None)
        if place.path and marked is not None:
            message = f"Field '{clean_text(str(place.path[-1]), 60)}' is deprecated"
            hint = read_own_words(marked)
            yield Violation(codes.DEPRECATED_FIELD, place.path, message, hint=hint, severity=Severity.WARNING)
