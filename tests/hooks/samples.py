"""Hooks for the tests: some do their part, some do everything they should not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from proxy.core import decide
from proxy.core.model.values import CheckedCall
from proxy.hooks import Answer, Call, Change, Ending, Hook, Outgoing, Refuse, Result, Verdict

# The calls of hooks, in their order.
TOLD: Final[list[tuple[str, str, object]]] = []


class Witness(Hook):
    """Writes down every call of the hook and its argument."""

    def __init__(self, name: str = "witness") -> None:
        self.name = name

    async def before_decision(self, call: Call) -> None:
        TOLD.append((self.name, "before_decision", call.arguments))

    async def after_decision(self, call: Call, verdict: Verdict) -> None:  # noqa: ARG002 - the signature of the point
        TOLD.append((self.name, "after_decision", verdict))

    async def before_forward(self, call: Call, request: Outgoing) -> None:
        TOLD.append((self.name, "before_forward", (call.body, request.target)))

    async def after_answer(self, call: Call, result: Result) -> None:
        TOLD.append((self.name, "after_answer", (call.body, result.status, result.value, result.whole)))

    async def after_outcome(self, call: Call, ending: Ending) -> None:  # noqa: ARG002 - the signature of the point
        TOLD.append((self.name, "after_outcome", ending))


class Says(Hook):
    """Says one thing before the decision."""

    def __init__(self, change: Any = None, refuse: str = "", answer: Any = None) -> None:
        self._change, self._refuse, self._answer = change, refuse, answer

    async def before_decision(self, call: Call) -> Change | Refuse | Answer | None:  # noqa: ARG002 - as above
        if self._refuse:
            return Refuse(self._refuse, hint="Ask somebody else.", status=403)
        if self._answer is not None:
            return Answer(self._answer)
        return None if self._change is None else Change(self._change)


class Replaces(Hook):
    """Puts something in the place of the tool's answer: a value, or what is not an answer at all."""

    def __init__(self, value: Any = None, status: int = 200, nonsense: bool = False) -> None:
        self._value, self._status, self._nonsense = value, status, nonsense

    async def after_answer(self, call: Call, result: Result) -> Answer | None:  # noqa: ARG002 - as above
        return {} if self._nonsense else Answer(self._value, self._status)  # type: ignore[return-value]


class Cache(Hook):
    """Keeps answers by tool and arguments, and gives them again."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, bytes], Any] = {}

    async def before_decision(self, call: Call) -> Answer | None:
        kept = self._kept.get((call.tool, call.body))
        return None if kept is None else Answer(kept)

    async def after_answer(self, call: Call, result: Result) -> None:
        if result.whole and result.status == 200:
            self._kept[call.tool, call.body] = result.value


class Filter(Hook):
    """Refuses what speaks of a secret, as the page shows it, and notes the types of the texts."""

    async def before_decision(self, call: Call) -> Refuse | None:
        TOLD.append(("filter", "before_decision", (type(call.text), type(call.body))))
        return Refuse("Not with a secret.") if "secret" in call.text else None

    async def after_answer(self, call: Call, result: Result) -> Answer | None:  # noqa: ARG002 - the signature of the point
        TOLD.append(("filter", "after_answer", result.text))
        return Answer("filtered") if "secret" in result.text else None


class Headers(Hook):
    """Sets and removes headers of what goes out."""

    def __init__(self, **headers: str | None) -> None:
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    async def before_forward(self, call: Call, request: Outgoing) -> Mapping[str, str | None]:  # noqa: ARG002 - as above
        return self._headers


async def _sleeps(_call: Call) -> Any:
    await asyncio.sleep(30)


async def _holds_on(_call: Call) -> Any:
    """Does not let itself be cancelled for a while."""
    for _ in range(3):
        try:
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            continue


async def _raises(call: Call) -> Any:
    raise ValueError(f"secret value {call.arguments}")


async def _exits(_call: Call) -> Any:
    sys.exit(3)


async def _cancels(_call: Call) -> Any:
    raise asyncio.CancelledError


async def _says_nonsense(_call: Call) -> Any:
    return {"lat": 1}


async def _hands_over_a_checked_call(call: Call) -> Any:
    """Makes what only the decision may make, and passes it on in every way there is."""
    made: Any = CheckedCall(None, b'{"lat": "north"}', {"lat": "north"})  # type: ignore[arg-type]
    return Change(made) if call.header("x-way") == "change" else made


async def _changes_what_it_is_shown(call: Call) -> Any:
    """Valid at the first look, something else afterwards."""
    arguments = call.arguments
    arguments["lat"] = "north"
    object.__setattr__(call, "text", b'{"lat": "north"}')
    return None


async def _rewrites_the_headers(call: Call) -> Any:
    """Writes into the index of the headers, of which others read what the request says of itself."""
    vars(call.headers)["by_name"] = {"content-type": "text/plain"}


class _Shifting(dict[str, Any]):
    """A mapping that says something else each time it is read."""

    def __init__(self) -> None:
        super().__init__(lat=1)

    def items(self) -> Any:
        self["lat"] = "north"
        return super().items()


async def _shifts(_call: Call) -> Any:
    return Change(_Shifting())


async def _changes_later(_call: Call) -> Any:
    arguments: dict[str, Any] = {"lat": 1}
    asyncio.get_running_loop().call_soon(arguments.update, {"lat": "north"})
    return Change(arguments)


async def _grows(_call: Call) -> Any:
    """Hands on more than a client may send."""
    return Change({"lat": 1, "note": "x" * 2_000_000})


async def _answers_what_is_no_json(_call: Call) -> Any:
    return Answer({1, 2})


WAYS: Final[dict[str, Callable[[Call], Awaitable[Any]]]] = {
    way.__name__.lstrip("_"): way
    for way in (
        _sleeps, _holds_on, _raises, _exits, _cancels, _says_nonsense, _hands_over_a_checked_call,
        _changes_what_it_is_shown, _rewrites_the_headers, _shifts, _changes_later, _grows, _answers_what_is_no_json,
    )
}  # fmt: skip


class Misbehaves(Hook):
    """Does one of `WAYS` before the decision."""

    def __init__(self, way: str) -> None:
        self._way = WAYS[way]

    async def before_decision(self, call: Call) -> Change | Refuse | Answer | None:
        return await self._way(call)  # type: ignore[no-any-return]


class WaitsAt(Hook):
    """Waits at one of the last points until its call ends."""

    def __init__(self, point: str) -> None:
        self._point = point

    async def after_answer(self, call: Call, result: Result) -> None:  # noqa: ARG002 - the signature of the point
        await self._wait("after_answer")

    async def after_outcome(self, call: Call, ending: Ending) -> None:  # noqa: ARG002 - as above
        await self._wait("after_outcome")

    async def _wait(self, point: str) -> None:
        if point == self._point:
            TOLD.append(("waits", point, None))
            await asyncio.Event().wait()


class FailsAt(Hook):
    """Raises at one of the later points."""

    def __init__(self, point: str) -> None:
        self._point = point

    async def after_decision(self, call: Call, verdict: Verdict) -> None:  # noqa: ARG002 - the signature of the point
        self._fail("after_decision")

    async def before_forward(self, call: Call, request: Outgoing) -> None:  # noqa: ARG002 - as above
        self._fail("before_forward")

    async def after_answer(self, call: Call, result: Result) -> None:  # noqa: ARG002 - as above
        self._fail("after_answer")

    async def after_outcome(self, call: Call, ending: Ending) -> None:  # noqa: ARG002 - as above
        self._fail("after_outcome")

    def _fail(self, point: str) -> None:
        if point == self._point:
            raise RuntimeError(decide.__name__)


READY = Witness("ready")


class NoHook:
    """Not a hook."""


class Empty(Hook):
    """A hook that never says anything."""


class Plain(Hook):
    """A hook that is not a coroutine."""

    def before_decision(self, call: Call) -> None:  # type: ignore[override]
        """Not awaited."""
