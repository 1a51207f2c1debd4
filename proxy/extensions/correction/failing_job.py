"""Finds the places that a correction may change in a child process, where the arguments are large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proxy.call.jobs import describe_violation, read_shared_policy, read_violation
from proxy.call.judging import LIGHT
from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.jsontext import TRUSTED, dumps, join_frame, parse, split_frame
from proxy.core.model.values import Document, Failure, JsonProblem, JsonValue, ToolCall, Violation
from proxy.core.model.work import find_budget, share_work
from proxy.extensions.correction.core.failing_places import find_failing_places, list_failed, list_failing_places
from proxy.interfaces import JudgesElsewhere

_JOB: Final = "proxy.extensions.correction.failing_job:find_failing"


async def find_failing_elsewhere(
    elsewhere: JudgesElsewhere | None, call: ToolCall, policy: ToolPolicy, failure: Failure
) -> list[tuple[str, ...]]:
    """The places of a call's arguments that a correction may change; of large arguments, where finding them takes too
    much, those that failed."""
    document, failed = call.arguments, list_failed(failure)
    if elsewhere is None or policy.check is None or not failed or not isinstance(document, Document):
        return find_failing_places(call, policy, failure)
    if len(document.text) <= LIGHT:
        return find_failing_places(call, policy, failure)
    payload = write_failing_job(document.text, document.value, failure.violations)
    result = await elsewhere.ask(_JOB, payload, policy)
    return failed if result is None else read_failing(result)


def find_failing(payload: bytes, shared: bytes) -> bytes:
    """The places that fail in the arguments in `payload` (see `write_failing_job`) by a described policy, as JSON."""
    head, text = split_frame(payload)
    policy = read_shared_policy(shared)
    value = parse(text, TRUSTED)
    if policy.check is None or isinstance(value, JsonProblem):
        raise ValueError("arguments that were judged")
    violations = [read_violation(entry, lambda: value) for entry in head["violations"]]
    with share_work(find_budget(value)):
        return dumps([list(place) for place in list_failing_places(policy.check, value, violations)])


def write_failing_job(text: bytes, value: JsonValue, violations: Sequence[Violation]) -> bytes:
    """The payload of `find_failing`: the arguments and their violations."""
    return join_frame({"violations": [describe_violation(violation, value) for violation in violations]}, text)


def read_failing(result: bytes) -> list[tuple[str, ...]]:
    """The places that `find_failing` names."""
    places: Any = parse(result, TRUSTED)
    return [tuple(place) for place in places]
