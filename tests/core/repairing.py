"""The shared parts of the repair tests: validate one call against a schema and describe the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import Mode, RepairPolicy, ToolPolicy, UnknownKeys
from proxy.core.decide import decide
from proxy.core.json.jsontext import TextLimits, dumps, read_document
from proxy.core.model.values import (
    Conversation,
    Decision,
    Document,
    Forward,
    JsonValue,
    Reject,
    Rung,
    ToolCall,
    Violation,
)
from proxy.core.rules.rules import TEXT_RULES, select_rules

# A tool that only reads: on others null and nothing are never taken as not sent.
TOOL: Final = "get_tool"
DROP_KEYS: Final = frozenset({"toolCallId", "sessionId", "chatInput"})
ALIASES: Final = {"latitude": "lat"}
LEVELS: Final = ("off", "basic", "standard", "lenient")


def policy(
    schema: JsonValue,
    level: str = "standard",
    switches: Mapping[str, bool] | None = None,
    unknown_keys: UnknownKeys = UnknownKeys.SCHEMA,
    mode: Mode = Mode.ENFORCE,
) -> ToolPolicy:
    """The policy of a tool with this schema at a repair level."""
    on = select_rules(level, switches)
    by_hand = frozenset(name for name, wanted in (switches or {}).items() if wanted)
    rules = RepairPolicy(on, DROP_KEYS if "drop_unknown" in on else frozenset(), by_hand, aliases=ALIASES)
    return ToolPolicy(TOOL, compile_check(schema), "f", repair=rules, unknown_keys=unknown_keys, mode=mode)


def call(sent: str | bytes, rules: frozenset[str] = frozenset()) -> ToolCall:
    """A call whose arguments arrived as this text."""
    text = sent.encode() if isinstance(sent, str) else sent
    document = read_document(text, TextLimits(), rules & TEXT_RULES) if text else Document(b"", None)
    return ToolCall(TOOL, document, "call_1", Conversation("c-1", Rung.HEADER), text)


def judged(sent: str | bytes, under: ToolPolicy) -> Decision:
    return decide(call(sent, under.repair.rules), under)


def outcome(
    schema: JsonValue, sent: str | bytes, level: str = "standard", switches: Mapping[str, bool] | None = None
) -> str:
    """The text that would be sent, or the codes and paths of the refusal: `VAL-002 /a`."""
    return told(judged(sent, policy(schema, level, switches)))


def told(decision: Decision) -> str:
    if isinstance(decision, Forward):
        return decision.checked.arguments.decode()
    return ", ".join(f"{v.code} {''.join(f'/{step}' for step in v.path)}".strip() for v in decision.failure.violations)


def repairs(
    schema: JsonValue, sent: str | bytes, level: str = "standard", switches: Mapping[str, bool] | None = None
) -> list[str]:
    """The repairs of a forwarded call as `rule /path`."""
    decision = judged(sent, policy(schema, level, switches))
    assert isinstance(decision, Forward), told(decision)
    return [f"{made.rule} {''.join(f'/{step}' for step in made.path)}".strip() for made in decision.checked.repairs]


def refused(schema: JsonValue, sent: str | bytes, level: str = "standard") -> tuple[Violation, ...]:
    decision = judged(sent, policy(schema, level))
    assert isinstance(decision, Reject), dumps(decision.checked.value)
    return decision.failure.violations


def obj(**properties: JsonValue) -> JsonValue:
    """An object schema with these properties, none of them required."""
    return {"type": "object", "properties": properties}
