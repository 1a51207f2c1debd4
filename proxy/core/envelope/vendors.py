"""The formats of model vendors' tool messages, MCP's results, and RFC 9457 problem details for plain HTTP clients."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from proxy.core.envelope import parts
from proxy.core.envelope.tool_result import error
from proxy.core.model import JsonValue
from proxy.core.sentence import sentence
from proxy.core.telling import Telling


def openai(telling: Telling) -> JsonValue:
    """An OpenAI tool message; that API refuses keys it does not know, so there is no machine part."""
    return {"role": "tool", "tool_call_id": telling.result.call.call_id, "content": sentence(telling)}


def anthropic(telling: Telling) -> JsonValue:
    """An Anthropic `tool_result` content block."""
    return {
        "type": "tool_result",
        "tool_use_id": telling.result.call.call_id,
        "content": sentence(telling),
        "is_error": True,
    }


# Where MCP lets anybody add something of his own (specification, "_meta": a prefix, a slash, a name).
MCP_FEEDBACK: Final = "toolcall-proxy/feedback"


def mcp(telling: Telling) -> dict[str, JsonValue]:
    """MCP's `CallToolResult`: the sentence as text, the part for machines in `_meta`.

    Never `structuredContent`: one SDK holds it against the tool's outputSchema and throws our text away, one framework
    shows its model nothing else.
    """
    return {
        "content": [{"type": "text", "text": sentence(telling)}],
        "isError": True,
        "_meta": {MCP_FEEDBACK: error(telling)},
    }


def problem(telling: Telling) -> dict[str, JsonValue]:
    """RFC 9457 problem details: `detail` is the sentence, everything for machines is an extension member."""
    failure, attempt = telling.result.failure, telling.result.attempt
    return {
        "type": "urn:toolcall-proxy:error:" + failure.code.name.lower().replace("_", "-"),
        "title": failure.code.meaning.rstrip("."),
        "status": HTTPStatus.OK.value,
        "detail": sentence(telling),
        "code": failure.code.name,
        "error_type": failure.code.error_type.value,
        "category": failure.code.category.value,
        "retryable": failure.may_retry,
        "errors": parts.errors(telling),
        "attempt": attempt.number if attempt else None,
        "max_attempts": attempt.limit if attempt else None,
    }
