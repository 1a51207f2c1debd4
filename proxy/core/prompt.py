"""Guidance: the text an agent's prompt takes in before it calls tools (GoMind layer 1, Compozy's ReAct header). Pure.

In this order, as far as the room goes: the ReAct header and the type rules, always; the state of one conversation,
where it is wanted; then a section per tool with its signature and with right and wrong calls. A tool that finds no room
is named, so that it can be asked for alone. Deterministic: the same tools give the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from proxy.core import container
from proxy.core.graphemes import cut, escape
from proxy.core.guidance import signature
from proxy.core.jsontext import dumps
from proxy.core.lessons import lesson
from proxy.core.policy import ToolPolicy

# Compozy gap 4: always there, and no switch takes it away.
REACT_HEADER: Final = """\
Work step by step, and keep to this order:
THINK: say what you know, what is missing, and which one tool brings you further.
ACT: call that tool, with arguments that match its schema exactly.
OBSERVE: read the result before you go on. If it is an error, change what it names and call again; never send a refused
call again as it was. If it says to stop, stop and ask the user.
When you have what you need, answer without calling a tool."""

# GoMind layer 1, "JSON Type Rules", with what models get wrong besides.
TYPE_RULES: Final = """\
CRITICAL - JSON type rules:
1. Numbers (number, integer, float64) take NO quotes: 35.6897, 10
2. Booleans take NO quotes: true, false
3. Strings take quotes: "Tokyo"
4. Lists and objects are JSON, not text that holds JSON: ["a", "b"], {"key": 1}
5. Leave out an optional field you have no value for; do not send "" or null for it.
6. Use the field names and the listed values exactly as they are written."""

# Bounds of one tool's section, in code points.
_DESCRIPTION: Final = 400
_SIGNATURE: Final = 1200
_EXAMPLE: Final = 500
# Room kept for the names of tools that find none.
_NAMES: Final = 400
# No section is shorter, so where less room is left none is made.
_LEAST: Final = 60


@dataclass(frozen=True, slots=True)
class ToolState:
    """Where a conversation stands with one tool: calls used (None where none are counted) of how many, and failed
    attempts of how many."""

    tool: str
    used: int | None
    cap: int | None
    failed: int
    max_attempts: int


def guidance(policies: Mapping[str, ToolPolicy], max_chars: int, states: Sequence[ToolState] = ()) -> str:
    """The guidance for these tools, of at most `max_chars` characters; header, rules, state and the names of tools that
    find no room are there in any case."""
    parts = [REACT_HEADER, TYPE_RULES]
    if states:
        parts.append(state_fragment(states))
    room = max_chars - sum(len(part) + 2 for part in parts) - _NAMES
    left_out: list[str] = []
    for name, policy in policies.items():
        text = section(policy) if room > _LEAST else ""
        if not text or len(text) + 2 > room:
            left_out.append(name)
            continue
        parts.append(text)
        room -= len(text) + 2
    if left_out:
        parts.append(cut(f"Further tools, each with guidance of its own: {', '.join(left_out)}", _NAMES))
    return "\n\n".join(parts) + "\n"


def section(policy: ToolPolicy) -> str:
    """One tool: what it is for, what it takes, right and wrong calls."""
    lines = [f"## {policy.tool}"]
    if policy.description:
        lines.append(cut(escape(policy.description), _DESCRIPTION))
    if policy.container is not None:
        return "\n".join([*lines, container.guidance(policy.container)])
    if policy.check is None:
        return "\n".join([*lines, "Arguments: as its description says."])
    taken = "The output" if policy.finalising else "Arguments"
    lines.append(f"{taken}: {cut(signature(policy.check.root), _SIGNATURE)}")
    if policy.finalising:
        lines.append("This is a final output, not a call: answer with the JSON alone, without any text around it.")
    taught = lesson(policy)
    right = [text for value in taught.right if len(text := dumps(value).decode()) <= _EXAMPLE]
    lines += [f"✓ CORRECT: {text}" for text in right]
    for wrong in taught.wrong:
        text = dumps(wrong.value).decode()
        fate = f"refused with {wrong.code}" if wrong.code else "has to be repaired"
        if len(text) <= _EXAMPLE:
            lines.append(f"✗ WRONG: {text}  ({wrong.what}; {fate})")
    return "\n".join(lines)


def state_fragment(states: Sequence[ToolState]) -> str:
    """What a conversation has used up, one line per tool (Compozy, "dynamic state")."""
    return "\n".join(["State of this conversation:", *map(_state, states)])


def _state(state: ToolState) -> str:
    said = []
    if state.cap is not None:
        left = max(state.cap - (state.used or 0), 0)
        said.append(f"{state.used or 0} of {state.cap} calls used, {left} left")
    left = max(state.max_attempts - state.failed, 0)
    tried = f"{state.failed} failed attempt{'' if state.failed == 1 else 's'} of {state.max_attempts}, {left} left"
    said.append(tried)
    if state.cap is not None and (state.used or 0) >= state.cap:
        said.append("do not call it again")
    elif not left:
        said.append("ask the user before you call it again")
    return f"- {state.tool}: {'; '.join(said)}"
