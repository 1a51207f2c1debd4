"""Compares both judges on a value for `check --second-opinion` and `replay --second-opinion`, within bounds of time and
memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue
from proxy.extensions.second_judge.core.examples import make_full_example, make_minimal_example
from proxy.extensions.second_judge.core.question import JOB, Opinion, SecondVerdict, unpack_opinion
from proxy.extensions.second_judge.second_judges import MEMORY, SECONDS, share_question
from proxy.offload.pool import Done, OffloadPool
from proxy.plugin import Check

if TYPE_CHECKING:
    from proxy.plugin import FlagFinding, Loaded

# Values that replace each property of an example in turn.
_ODD: Final[tuple[JsonValue, ...]] = (None, True, 0, -1, 2.5, 10**20, "", "x", "é", [], ["x"], {}, {"x": 1})
# The most properties of a full example; each of them is varied.
_MOST: Final = 40
# Characters of a value that a difference shows.
_SHOWN: Final = 200


class SecondOpinions:
    """Asks the second judge about values, in a child process that is killed where it takes too long."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._pool = OffloadPool(size=1, memory=MEMORY)

    def __enter__(self) -> SecondOpinions:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._pool.close())
        self._runner.close()

    def find_difference(self, check: Check, value: JsonValue) -> Opinion | None:
        """The second judge's opinion if it differs from the check's verdict; None if both agree or it cannot tell."""
        answer = self._runner.run(self._pool.run(JOB, dumps(value), share_question(check), seconds=SECONDS))
        if not isinstance(answer, Done):
            return None
        opinion = unpack_opinion(answer.result)
        if opinion.verdict is SecondVerdict.CANNOT_TELL:
            return None
        return opinion if (opinion.verdict is SecondVerdict.VALID) is not check.accepts(value) else None


def compare_judges(loaded: Loaded) -> list[FlagFinding]:
    """Returns the differences of both judges on values made for every tool of a config."""
    from proxy.plugin import FlagFinding
    from proxy.routing import build_routes

    with SecondOpinions() as opinions:
        found = [
            f"{route.name}: tool {name!r}: {describe_difference(opinion)}: {dumps(value).decode()[:_SHOWN]}"
            for route in build_routes(loaded.config).routes
            for name, policy in route.tools.items()
            if (check := policy.check) is not None
            for value in make_values(check)
            if (opinion := opinions.find_difference(check, value)) is not None
        ]
    differences = [FlagFinding(f"second opinion: {text}", text, text) for text in found]
    return differences or [FlagFinding("second opinion: no difference")]


def describe_difference(opinion: Opinion) -> str:
    """A difference in words."""
    at = f" at {opinion.place}" if opinion.place else ""
    if opinion.verdict is SecondVerdict.INVALID:
        return f"accepted here, refused by {opinion.judge}{at}"
    return f"refused here, accepted by {opinion.judge}"


def make_values(check: Check) -> Iterator[JsonValue]:
    """Values worth judging twice: the schema's own examples and defaults, examples made from it, and copies of those
    with one property changed."""
    root = check.root
    yield from _list_given(root.get("examples"), root.get("default"))
    made: list[JsonValue] = []
    with suppress(RecursionError):
        made = [make_minimal_example(check), make_full_example(check, _MOST)]
    yield from made
    full = made[-1] if made else None
    if not isinstance(full, dict):
        yield from _ODD
        return
    for key, node in list(root.properties.items())[:_MOST]:
        for item in (*_list_given(node.get("examples"), node.get("default")), *_ODD):
            yield {**full, key: item}
        yield {name: item for name, item in full.items() if name != key}


def _list_given(examples: JsonValue, default: JsonValue) -> list[JsonValue]:
    return [*(examples if isinstance(examples, list) else ()), *(() if default is None else (default,))]
