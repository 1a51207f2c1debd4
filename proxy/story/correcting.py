"""A better call in place of one that failed (layers 3 and 4). Nothing here runs where no correction is configured.

A corrected call goes the way of every other: hooks admit it, `decide` judges it, its cap and its container count. What
a correction cannot mend is answered as if none had been tried: the record forgets the tries but for what was asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import fields, replace
from typing import Final

from proxy.core.model import Delivered, Failure, ToolCall
from proxy.interfaces import CallRecord, Stumble
from proxy.story.case import Case, Setback
from proxy.upstream.stream import close_body

# What of a record tells of the tries themselves.
_KEPT: Final = frozenset({"events", "questions", "stages", "hook_failures", "trace"})


async def correct(
    case: Case, setback: Setback, attempt: Callable[[Case], Awaitable[Delivered | Setback]]
) -> Delivered | Setback:
    """What came of a corrected call, or the setback as it was; another one only where a corrected call may have run."""
    corrector, policy, record = case.services.corrector, case.policy, case.record
    if corrector is None or policy is None or not policy.correction.on or case.report_only:
        return setback
    if policy.container is not None or (not policy.correction.trajectory and await _asked_before(case)):
        return setback  # what a container was called with belongs to one of its functions
    before, started, latest = copy(record), case.services.clock.now(), setback
    hooks = record.stages.get("hooks", 0.0)

    async def try_call(call: ToolCall) -> Delivered | Failure:
        nonlocal latest
        result = await attempt(replace(case, call=call))
        if isinstance(result, Setback):
            latest = result
            return result.failure
        if result.failed and result.reply.status < 500:
            await close_body(result.reply)  # the corrector will not have it
        return result

    found = await corrector.correct(Stumble(case.call, setback.failure, policy, case.lane, record), try_call)
    if found is None:
        _restore(record, before)
    waited = case.services.clock.now() - started
    waited -= record.upstream_seconds - before.upstream_seconds + record.stages.get("hooks", 0.0) - hooks
    record.stages["correction"] = waited  # what is written down elsewhere counts there
    if isinstance(found, Delivered):
        return found
    return setback if found is None else latest


async def _asked_before(case: Case) -> bool:
    """Whether these very arguments failed before in this episode: nothing has changed that a model could go by."""
    store = case.services.store
    episode = await store.look(case.key) if store.knows(case.key) else None
    return episode is not None and case.digest in episode.digests


def _restore(record: CallRecord, before: CallRecord) -> None:
    for entry in fields(record):
        if entry.name not in _KEPT:
            setattr(record, entry.name, getattr(before, entry.name))
