"""The cost of an answer: formatting, aggregating, looking an episode up, remembering a history.

    python -m benchmarks.answers

Prints figures beside the bounds that Acode sets (NFR-001..NFR-004), and ends with code 1 if one is exceeded. It is not
a test, because a shared machine cannot be timed reliably. Figures are the best of several rounds, in microseconds of
CPU for one operation.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable
from time import monotonic, perf_counter, process_time
from typing import Any

from proxy.core.contract import attempts as contract
from proxy.core.envelope import FORMATS, render_failure
from proxy.core.envelope.feedback import write_feedback
from proxy.core.envelope.view import select_violations
from proxy.core.model import codes
from proxy.core.model.values import Attempt, Conversation, Document, Failure, Rung, ToolCall, ToolResult, Violation
from proxy.state import make_store

CALL = ToolCall("write_file", Document(b"{}", {}), "call_1", Conversation("c-1", Rung.HEADER))
ROUNDS = 20


class WallClock:
    """The real clock."""

    def now(self) -> float:
        return monotonic()

    def wall(self) -> float:
        return monotonic()


def refusal(errors: int, value: Any) -> ToolResult:
    """A refused call with so many errors, each quoting `value`."""
    found = tuple(
        Violation(
            codes.ENUM_MISMATCH,
            ("items", number, "encoding"),
            "Invalid enum value 'uft8'",
            "one of 'utf-8', 'ascii', 'utf-16'",
            "Did you mean 'utf-8'?",
            value=value,
        )
        for number in range(errors)
    )
    failure = Failure(codes.INVALID_ARGUMENTS, codes.INVALID_ARGUMENTS.meaning, found, sent={"items": value})
    accepts = ("{items: {encoding?: 'utf-8' | 'ascii' | 'utf-16'}[]}",)
    return ToolResult(CALL, failure, Attempt(1, 3), accepts=accepts, example='{"items": [{"encoding": "utf-8"}]}')


def best(operation: Callable[[], object], repeat: int) -> float:
    """Microseconds of CPU for one operation, the best of some rounds."""
    times = []
    for _ in range(ROUNDS):
        started = process_time()
        for _ in range(repeat):
            operation()
        times.append((process_time() - started) / repeat * 1e6)
    return min(times)


def show(what: str, figure: float, unit: str, most: float | None = None, note: str = "") -> bool:
    """Prints one line of the report. Returns whether the figure keeps its bound."""
    fits = most is None or figure < most
    bound = "" if most is None else f"< {most:g} " + ("" if fits else "EXCEEDED ")
    print(f"{what:<58} {figure:>10.1f} {unit:<6} {bound}{note}")
    return fits


async def look_ups(keys: int) -> tuple[float, float]:
    """Microseconds of one look-up and one failure with so many keys in the store."""
    store = make_store("memory", WallClock(), 100_000)
    attempt = contract.make_failed_attempt(refusal(3, "uft8").failure, "digest")
    for number in range(keys):
        await store.fail(f"key {number}", attempt, 1800)
    figures = []
    for act in (store.look, lambda key: store.fail(key, attempt, 1800)):
        started = perf_counter()
        for number in range(20_000):
            await act(f"key {number % keys}")
        figures.append((perf_counter() - started) / 20_000 * 1e6)
    return figures[0], figures[1]


def size_of(value: Any, seen: set[int]) -> int:
    """Bytes of a value and all it holds."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    slots = getattr(type(value), "__slots__", ())
    inner = value if isinstance(value, tuple) else [getattr(value, name) for name in slots]
    return sys.getsizeof(value) + sum(size_of(item, seen) for item in inner)


def largest_history() -> int:
    """Bytes of a history after 100 attempts with the longest names that can be sent."""
    recorded = None
    for number in range(100):
        broken = Violation(codes.TYPE_MISMATCH, ("𝓀" * 1000, str(number)), "", "", value=1)
        failure = Failure(codes.INVALID_ARGUMENTS, "", (broken,) * 5)
        attempt = contract.make_failed_attempt(failure, f"{number:032x}")
        recorded = contract.add(recorded.episode if recorded else None, attempt)
    return size_of(recorded.episode if recorded else None, set())


def main() -> None:
    """Prints every figure."""
    ten, long = refusal(10, "uft8"), refusal(10, "x" * 1_000_000)
    nested = refusal(10, [{"a": [{"b": "y" * 500}] * 50}] * 50)
    hundred = refusal(100, "uft8").failure.violations
    kept = [
        show("feedback, 10 errors", best(lambda: write_feedback(ten), 200), "us", 1000, "(NFR-001)"),
        show("feedback, 10 errors quoting 1 MB strings", best(lambda: write_feedback(long), 50), "us", 1000),
        show("feedback, 10 errors quoting large containers", best(lambda: write_feedback(nested), 50), "us", 1000),
    ]
    for name in FORMATS:
        whole = functools.partial(render_failure, ten, name, "ok")
        show(f"whole answer as {name}, 10 errors", best(whole, 100), "us")
    aggregated = best(lambda: select_violations(ten.failure.violations, 10), 2000)
    kept.append(show("aggregation, 10 errors", aggregated, "us", 100, "(NFR-002)"))
    show("aggregation, 100 errors", best(lambda: select_violations(hundred, 10), 200), "us")
    for keys in (1, 1_000, 100_000):
        looked, failed = asyncio.run(look_ups(keys))
        show(f"look-up with {keys} keys", looked, "us", note="flat (NFR-003)")
        show(f"recorded failure with {keys} keys", failed, "us", note="flat")
    kept.append(show("largest history", largest_history(), "bytes", 10_000, "(NFR-004)"))
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
