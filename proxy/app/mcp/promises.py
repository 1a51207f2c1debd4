"""Whether structured results are what the tool's `outputSchema` promises: counted, where the operator asks for it.

Results go on whatever they say, and errors promise nothing (specification, "Tool Result").
"""

from __future__ import annotations

from typing import Final

from proxy.adapters.mcplist import answered
from proxy.app.catalogue import Catalogue
from proxy.app.mcp.asking import Asking
from proxy.core.model import ABSENT, JsonValue
from proxy.core.validation import Check
from proxy.interfaces import CallRecord
from proxy.learning import Whole

# The longest result that is looked into, in bytes.
_LONGEST: Final = 1024 * 1024


def output_promise(catalogue: Catalogue | None, asking: Asking, record: CallRecord) -> Whole | None:
    """A watch that notes in the record what becomes of a promise; None where there is none, or nobody asks."""
    if catalogue is None or not asking.rules.output_check:
        return None
    check = catalogue.tools.output_check(record.tool)
    if check is None:
        return None
    record.answer = "unread"

    def read(body: bytes) -> None:
        kind = "text/event-stream" if body.lstrip()[:1] != b"{" else "application/json"
        answer = answered(kind, body, asking.message.id)
        record.answer = _kept(answer.get("result"), check) if answer is not None else "unread"

    return Whole(read, _LONGEST)


def _kept(result: JsonValue, check: Check) -> str:
    """One of the words of `CallRecord.answer`; '' where the result promises nothing."""
    if not isinstance(result, dict) or result.get("isError") is True or result.get("resultType") == "input_required":
        return ""
    structured = result.get("structuredContent", ABSENT)
    return "unread" if structured is ABSENT else "passed" if check.accepts(structured) else "broken"
