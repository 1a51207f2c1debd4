"""Reads and writes the bodies of requests and answers: large ones in a child process, as large calls are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.call.judging import is_rich
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import JsonProblem, JsonValue, Pointer
from proxy.extensions.chat.core.found_calls import AnswerText, FoundCall, NewCall, write_calls
from proxy.extensions.chat.core.model_request import Api, ModelRequest, read_model_request, write_next_question
from proxy.extensions.chat.core.whole_bodies import (
    CHANGE,
    EXTEND,
    READ,
    REDUCE,
    WRITE,
    ReadAnswer,
    change_answer,
    load_answer,
    make_answer,
    read_answer,
    write_calling_job,
    write_changing_job,
    write_extending_job,
    write_reading_job,
)

if TYPE_CHECKING:
    from proxy.plugin import ListedRequest

# Longer bodies are read in a child, however few values they hold: here reading 1 MiB takes 7 ms, and writing it 23 ms.
_LONG: Final = 1024 * 1024


class LargeBodies:
    """Reads and writes the requests and answers of a route, without delaying other requests."""

    async def read_request(self, listed: ListedRequest, api: Api, body: bytes) -> ModelRequest | JsonProblem | None:
        """A request (`read_model_request`); a problem, too, where reading it takes too much work."""
        if not _is_large(listed, body):
            return read_model_request(api, body)
        request = read_model_request(api, await _ask(listed, REDUCE, body) or b"")
        return replace(request, size=len(body), whole=body) if isinstance(request, ModelRequest) else request

    async def write_question(
        self,
        listed: ListedRequest,
        request: ModelRequest,
        answer: JsonValue,
        calls: Sequence[FoundCall],
        results: Sequence[tuple[str, str]],
        *,
        is_cut: bool,
    ) -> bytes | None:
        """The body of the next question to an answer, or if that is None, to its calls only; None if there can be none.
        `is_cut`: the answer ended at its limit."""
        if listed.services.elsewhere is not None and request.whole:
            job = write_extending_job(request.api, request.whole, answer, calls, results, is_cut=is_cut)
            return await _ask(listed, EXTEND, job) or None
        turn = make_answer(request.api, calls) if answer is None else answer
        return write_next_question(request, turn, results, is_cut=is_cut)

    async def read_answer(self, listed: ListedRequest, api: Api, body: bytes) -> ReadAnswer | None:
        """Returns the parts of an answer; None if it is not a JSON object, or reading it takes too much work."""
        if not _is_large(listed, body):
            return read_answer(api, body)
        return load_answer(await _ask(listed, READ, write_reading_job(api, body)) or b"")

    async def change_answer(self, listed: ListedRequest, body: bytes, places: Mapping[Pointer, bytes]) -> bytes:
        """The answer with other values at these places."""
        if _is_large(listed, body) and (changed := await _ask(listed, CHANGE, write_changing_job(body, places))):
            return changed
        return change_answer(body, places)

    async def write_calls(
        self, listed: ListedRequest, api: Api, body: bytes, text: AnswerText, before: str, calls: Sequence[NewCall]
    ) -> bytes:
        """The answer with calls in place of their markup."""
        job = write_calling_job(api, body, text, before, calls) if _is_large(listed, body) else b""
        if job and (written := await _ask(listed, WRITE, job)):
            return written
        return write_calls(api, body, text, before, calls)


def _is_large(listed: ListedRequest, body: bytes) -> bool:
    return listed.services.elsewhere is not None and (len(body) > _LONG or is_rich(body))


async def _ask(listed: ListedRequest, job: str, payload: bytes) -> bytes | None:
    elsewhere = listed.services.elsewhere
    return None if elsewhere is None else await elsewhere.ask(job, payload, _find_template(listed))


def _find_template(listed: ListedRequest) -> ToolPolicy:
    """The policy for a child's job that is about no tool in particular."""
    brought = listed.call_route.binding.route.brought
    if brought is None:
        raise AssertionError("a relayed route says how brought tools are judged")
    return brought.template
