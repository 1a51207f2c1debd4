"""Reads requests, and writes the next ones: large ones in a child process, as the arguments of large calls are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from proxy.call.judging import is_rich
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions.chat.core.large_requests import EXTEND, REDUCE, write_extending_job
from proxy.extensions.chat.core.model_request import Api, ModelRequest, read_model_request
from proxy.extensions.chat.core.next_question import write_next_question
from proxy.server.listed_request import ListedRequest

# Longer requests are read in a child, however few values they hold: here 1 MiB takes 7 ms.
_LONG: Final = 2 * 1024 * 1024


class LargeRequests:
    """What a route's requests say, without keeping others waiting."""

    async def read(self, listed: ListedRequest, api: Api, body: bytes) -> ModelRequest | JsonProblem | None:
        """What a request asks for (`read_model_request`); a problem, too, where reading it takes too much."""
        elsewhere = listed.services.elsewhere
        if elsewhere is None or not (len(body) > _LONG or is_rich(body)):
            return read_model_request(api, body)
        reduced = await elsewhere.ask(REDUCE, body, _find_template(listed))
        asked = read_model_request(api, reduced or b"")
        return replace(asked, size=len(body), whole=body) if isinstance(asked, ModelRequest) else asked

    async def write_question(
        self, listed: ListedRequest, asked: ModelRequest, answer: JsonValue, results: list[tuple[str, str]]
    ) -> bytes | None:
        """The body of the next question; None where it cannot be asked."""
        elsewhere = listed.services.elsewhere
        if elsewhere is None or not asked.whole:
            return write_next_question(asked, answer, results)
        job = write_extending_job(asked.api, asked.whole, answer, results)
        return await elsewhere.ask(EXTEND, job, _find_template(listed)) or None


def _find_template(listed: ListedRequest) -> ToolPolicy:
    """What is sent along to a child that needs no tool's policy."""
    brought = listed.call_route.binding.route.brought
    if brought is None:
        raise AssertionError("a relayed route says how brought tools are judged")
    return brought.template
