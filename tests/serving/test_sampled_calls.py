"""Chance takes some of the forwarded calls for the second judge: more of a tool's first ones, none that is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pytest

from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import CheckedCall
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import JSON_TYPE, answer, replies, tool
from tests.upstream.scripted import Time

ROUTES: Final = """
  - {path: /one, upstream: tools, tool: one, schema: {properties: {n: {type: integer}}}}
  - {path: /other, upstream: tools, tool: other, schema: {properties: {n: {type: integer}}}}
  - {path: /free, upstream: tools, tool: free, validation: off}
"""


@dataclass
class Dice(Time):
    """Implements `Pacing`: chance always gives the same number."""

    number: float = 0.0

    def chance(self) -> float:
        return self.number


def take_samples(proxy: Proxied, dice: Dice) -> list[tuple[str, bytes]]:
    """Route and arguments of the calls that are taken from now on."""
    found: list[tuple[str, bytes]] = []

    def note(route: str, checked: CheckedCall, _policy: ToolPolicy) -> None:
        found.append((route, checked.arguments))

    handler = proxy.serving.handler
    services = replace(handler.snapshot.services, sampled=note, confirm=None, pacing=dice)
    handler.exchange(replace(handler.snapshot, services=services))
    return found


@pytest.mark.parametrize("fast", [True, False])
async def test_one_call_in_a_hundred_is_taken_of_a_tools_first_and_one_in_a_thousand_later(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.call.judging.FIRST", 2)
    dice, ok = Dice(), answer("200 OK", b"{}", JSON_TYPE)
    async with tool(replies(ok)) as upstream, proxied(ROUTES, upstream.url) as proxy:
        proxy.serving.handler.fast = fast
        taken = take_samples(proxy, dice)
        numbers = (0.0099, 0.01, 0.0099, 0.001, 0.0009)
        for number, dice.number in enumerate(numbers):
            await proxy.post("/one", b'{"n": %d}' % number)
        dice.number = 0.0099
        await proxy.post("/other", b'{"n": 7}')
    assert [("/one", b'{"n": 0}'), ("/one", b'{"n": 2}'), ("/one", b'{"n": 4}'), ("/other", b'{"n": 7}')] == taken


async def test_never_samples_a_rejected_call_or_one_without_a_schema() -> None:
    async with tool(replies(answer("200 OK", b"{}", JSON_TYPE))) as upstream, proxied(ROUTES, upstream.url) as proxy:
        taken = take_samples(proxy, Dice())
        for path in ("/one", "/free"):
            await proxy.post(path, b'{"n": "x"}')
        await proxy.post("/one", b'{"n": "1"}')
    assert [("/one", b'{"n":1}')] == taken
