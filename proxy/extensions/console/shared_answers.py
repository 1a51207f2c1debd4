"""Answers of the operator's port that several readers share."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from proxy.server.admin.page import EventPage, Page, PageRequest

# The most answers that are kept, and how long the longest one may be in bytes.
MOST_ANSWERS: Final = 8
LONGEST_ANSWER: Final = 256 * 1024
_MAX_AGE: Final = re.compile(r"(?:^|,)\s*max-age=([1-9][0-9]{0,5})\s*(?:,|$)")

Answer = Page | EventPage


class SharedAnswers:
    """The last answers that were made for readers with `max-age`, so that ten open pages cost little more than one.
    `now` gives seconds.

    A reader that sends `Cache-Control: max-age=N` (RFC 9111 section 5.2.1.1) takes an answer up to N seconds old, which
    was made for another reader with the same role, path and query. A reader that sends no `max-age` gets a new answer,
    and a POST, which may change something, ends all kept ones.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._made: dict[tuple[str, str, str, str], tuple[float, Page]] = {}

    async def find_or_make(
        self, question: PageRequest, cache_control: str, make: Callable[[PageRequest], Awaitable[Answer]]
    ) -> Answer:
        """Answers with a kept answer that is young enough, or with a new one. `Age` tells the age of a kept one."""
        wanted = _MAX_AGE.search(cache_control.lower())
        if question.method != "GET":
            answer = await make(question)
            self._made.clear()
            return answer
        if wanted is None:
            return await make(question)
        key = (question.role, question.path, question.query, question.accept)
        at, kept = self._made.get(key, (0.0, None))
        age = self._now() - at
        if kept is not None and age < int(wanted[1]):
            return replace(kept, headers=(*kept.headers, ("Age", str(int(age)))))
        answer = await make(question)
        if isinstance(answer, Page) and answer.status == 200 and len(answer.body) <= LONGEST_ANSWER:
            self._made.pop(key, None)
            self._made[key] = (self._now(), answer)
            if len(self._made) > MOST_ANSWERS:
                del self._made[next(iter(self._made))]
        return answer
