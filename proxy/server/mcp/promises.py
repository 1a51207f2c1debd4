"""Checks structured results against the tool's `outputSchema`, where the operator asks for it; results are counted,
never changed.

Results go on whatever they say, and errors promise nothing (specification, "Tool Result").
"""

from __future__ import annotations

from typing import Final

from proxy.adapters.mcplist import find_answer
from proxy.core.check.validation import Check
from proxy.core.model.values import ABSENT, JsonValue
from proxy.interfaces import CallRecord
from proxy.server.mcp.asking import Asking
from proxy.server.mcp.catalogue import Catalogue
from proxy.server.mcp.watching import WatchedBody

# The longest result that is checked, in bytes.
_LONGEST: Final = 1024 * 1024


def watch_promise(catalogue: Catalogue | None, asking: Asking, record: CallRecord) -> WatchedBody | None:
    """A watch that notes in the record what becomes of a promise; None where there is none, or nobody asks."""
    if catalogue is None or not asking.rules.output_check:
        return None
    check = catalogue.tools.output_check(record.tool)
    if check is None:
        return None
    record.answer = "unread"

    def read(body: bytes) -> None:
        kind = "text/event-stream" if body.lstrip()[:1] != b"{" else "application/json"
        answer = find_answer(kind, body, asking.message.id)
        record.answer = _kept(answer.get("result"), check) if answer is not None else "unread"

    return WatchedBody(read, _LONGEST)


def _kept(result: JsonValue, check: Check) -> str:
    """One of the words of `CallRecord.answer`; '' where the result promises nothing."""
    if not isinstance(result, dict) or result.get("isError") is True or result.get("resultType") == "input_required":
        return ""
    structured = result.get("structuredContent", ABSENT)
    return "unread" if structured is ABSENT else "passed" if check.accepts(structured) else "broken"
