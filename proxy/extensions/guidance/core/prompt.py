"""Guidance: the text for an agent's prompt before it calls tools (GoMind layer 1, Compozy's ReAct header). Pure.

Its parts, in order, as far as they fit: the ReAct header and the type rules, always; the state of one conversation, if
requested. Then follows a section per tool with its signature and with right and wrong calls. A tool whose section does
not fit is named, so that agents can request it separately. Deterministic: the same tools give the same text.

The right and wrong example calls of a tool (`make_lesson`, GoMind's "few-shot examples") come from its schema. Every
example has been tried: `decide` forwards a right one byte for byte, and refuses or repairs a wrong one, as the lesson
says. A wrong call differs from a right one in a single place.

The operator may give their own template (`guidance: {template: FILE}`): text with `{{name}}` in it. A line with only an
empty placeholder is left out, with the blank line behind it, so that a conversation without a state leaves no gap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Final

from proxy.core.contract import container
from proxy.core.contract.policy import Mode, ToolPolicy
from proxy.core.display.graphemes import cut, escape, fill_placeholders
from proxy.core.json.jsontext import are_equal, dumps, make_decimal, name_json_type
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    ABSENT,
    Conversation,
    Decision,
    Document,
    Forward,
    JsonValue,
    Pointer,
    Reject,
    Rung,
    ToolCall,
)
from proxy.core.rules.facts import list_declared, list_required, read_facts
from proxy.core.schema.nodes import Node
from proxy.extensions.second_judge.core.examples import make_full_example, make_minimal_example
from proxy.plugin import Check, write_signature

# Compozy gap 4: the header is always included, and no switch removes it.
REACT_HEADER: Final = """\
Work step by step, and keep to this order:
THINK: say what you know, what is missing, and which one tool brings you further.
ACT: call that tool, with arguments that match its schema exactly.
OBSERVE: read the result before you go on. If it is an error, change what it names and call again; never send a refused
call again as it was. If it says to stop, stop and ask the user.
When you have what you need, answer without calling a tool."""

# GoMind layer 1, "JSON Type Rules", with further mistakes that models make.
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
# Characters kept for the names of tools whose section does not fit.
_NAMES: Final = 400
_USUAL_TEMPLATE: Final = "{{header}}\n\n{{type_rules}}\n\n{{state}}\n\n{{tools}}\n"
# The length of the shortest section: with less room none is made.
_LEAST: Final = 60
PLACEHOLDERS: Final = {
    "header": "the ReAct header",
    "type_rules": "the type rules",
    "state": "the state of the conversation and its progress hints; nothing if none is known",
    "tools": "the sections of the tools, and the names of those that find no room",
}
# A template needs both: the header is always shown, and the tools are the subject of guidance.
NEEDED: Final = frozenset({"header", "tools"})
_ALONE: Final = re.compile(r"^[ \t]*\{\{\s*([^{}]*?)\s*\}\}[ \t]*(?:\r?\n|\Z)(?:[ \t]*\r?\n)?", re.MULTILINE)


@value_class
class ToolState:
    """The state of a conversation with one tool: calls used (None if they are not counted) and their limit, failed
    attempts and their limit. `last_failure` is the last mistake, `to_expand` the container to expand first."""

    tool: str
    used: int | None
    cap: int | None
    failed: int
    max_attempts: int
    last_failure: str = ""
    to_expand: str = ""


def write_guidance(
    policies: Mapping[str, ToolPolicy],
    max_chars: int,
    decide: Decide,
    states: Sequence[ToolState] = (),
    template: str = "",
) -> str:
    """The guidance for these tools, of at most `max_chars` characters, in the operator's own `template` if there is
    one. It always holds the header, the state and the names of tools whose section does not fit; without a template,
    the type rules too."""
    values = {"header": REACT_HEADER, "type_rules": TYPE_RULES, "state": write_state(states) if states else ""}
    around = fill_template(template or _USUAL_TEMPLATE, {**values, "tools": ""})
    tools = _write_sections(policies, max_chars - len(around) - 2 - _NAMES, decide)
    return fill_template(template or _USUAL_TEMPLATE, {**values, "tools": tools})


def _write_sections(policies: Mapping[str, ToolPolicy], room: int, decide: Decide) -> str:
    """The sections of the tools as far as they find room, and the names of the others."""
    parts: list[str] = []
    left_out: list[str] = []
    for name, policy in policies.items():
        text = write_section(policy, decide) if room > _LEAST else ""
        if not text or len(text) + 2 > room:
            left_out.append(name)
            continue
        parts.append(text)
        room -= len(text) + 2
    if left_out:
        parts.append(cut(f"Further tools, each with separate guidance: {', '.join(left_out)}", _NAMES))
    return "\n\n".join(parts)


def write_section(policy: ToolPolicy, decide: Decide) -> str:
    """One tool: its purpose, its arguments, right and wrong calls."""
    lines = [f"## {policy.tool}"]
    if policy.description:
        lines.append(cut(escape(policy.description), _DESCRIPTION))
    if policy.container is not None:
        return "\n".join([*lines, container.write_guidance(policy.container)])
    if policy.check is None:
        return "\n".join([*lines, "Arguments: as its description says."])
    return "\n".join([*lines, *write_call_lines(policy, decide)])


def write_call_lines(policy: ToolPolicy, decide: Decide) -> list[str]:
    """A tool's arguments, with right and wrong calls; empty where its schema is not known here."""
    if policy.check is None:
        return []
    taken = "The output" if policy.finalising else "Arguments"
    lines = [f"{taken}: {cut(write_signature(policy.check.root), _SIGNATURE)}"]
    if policy.finalising:
        lines.append("This is a final output, not a call: answer only with the JSON, without any text around it.")
    taught = make_lesson(policy, decide)
    right = [text for value in taught.right if len(text := dumps(value).decode()) <= _EXAMPLE]
    lines += [f"✓ CORRECT: {text}" for text in right]
    for wrong in taught.wrong:
        text = dumps(wrong.value).decode()
        fate = f"refused with {wrong.code}" if wrong.code else "has to be repaired"
        if len(text) <= _EXAMPLE:
            lines.append(f"✗ WRONG: {text}  ({wrong.what}; {fate})")
    return lines


def write_state(states: Sequence[ToolState]) -> str:
    """The used-up calls and attempts of a conversation, one line per tool (Compozy, "dynamic state")."""
    hints = list_progress_hints(states)
    progress = ["Progress:", *(f"- {hint}" for hint in hints)] if hints else []
    return "\n".join(["State of this conversation:", *map(_state, states), *progress])


def list_progress_hints(states: Sequence[ToolState]) -> list[str]:
    """Advice for the next step, most urgent first (Compozy, "progress hints")."""
    hints: list[tuple[int, str]] = []
    for state in states:
        left = None if state.cap is None else max(state.cap - (state.used or 0), 0)
        tries = max(state.max_attempts - state.failed, 0)
        if not tries:
            hints.append((0, f"{state.tool} failed {state.failed} times: stop, and ask the user."))
        elif left == 0:
            hints.append((1, f"{state.tool} is used up: go on with what you have."))
        elif state.to_expand:
            hints.append((2, f"Call {state.to_expand} with no arguments before you call {state.tool}."))
        elif state.failed:
            tail = "one try is left." if tries == 1 else f"{tries} tries are left."
            hints.append((3, f"Mend what {state.tool} was last refused for, and change nothing else: {tail}"))
        elif left == 1:
            hints.append((4, f"{state.tool} can be called once more: be sure of its arguments."))
    return [text for _, text in sorted(hints, key=lambda hint: hint[0])]


def _state(state: ToolState) -> str:
    parts = []
    if state.cap is not None:
        left = max(state.cap - (state.used or 0), 0)
        parts.append(f"{state.used or 0} of {state.cap} calls used, {left} left")
    left = max(state.max_attempts - state.failed, 0)
    tried = f"{state.failed} failed attempt{'' if state.failed == 1 else 's'} of {state.max_attempts}, {left} left"
    parts.append(tried)
    if state.last_failure:
        parts.append(f"last: {state.last_failure}")
    if state.cap is not None and (state.used or 0) >= state.cap:
        parts.append("do not call it again")
    elif not left:
        parts.append("ask the user before you call it again")
    return f"- {state.tool}: {'; '.join(parts)}"


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """The template with its placeholders filled in."""
    kept = _ALONE.sub(lambda found: found[0] if values[found[1]] else "", template)
    return fill_placeholders(kept, values).rstrip() + "\n"


# --- right and wrong examples -----------------------------------------------------------------------------------------
# `core.decide.decide`. It is passed in, because this file may not import it.
Decide = Callable[[ToolCall, ToolPolicy], Decision]

# The most optional keys that a right example shows.
_OPTIONAL: Final = 6
# The most mistakes tried, and their kinds in the order of importance, for when not all fit.
_TRIED: Final = 60
_KINDS: Final = ("number", "missing", "boolean", "choice", "unknown", "array", "object", "range")
# A key that no tool declares.
_UNKNOWN: Final = "anything_else"


@value_class
class Wrong:
    """A wrong call: its mistake in words, and the code of its first violation, or '' if it is repaired."""

    value: JsonValue = field(repr=False)
    what: str
    code: str


@value_class
class Lesson:
    """Right and wrong calls of a tool. Both fields may be empty: not every schema yields an example."""

    right: tuple[JsonValue, ...] = field(repr=False)
    wrong: tuple[Wrong, ...] = ()


def make_lesson(policy: ToolPolicy, decide: Decide, most_wrong: int = 4) -> Lesson:
    """The lesson of a tool, with each example tried by `decide`. Deterministic; never raises."""
    if policy.check is None or policy.container is not None:
        return Lesson(())
    strict = replace(policy, mode=Mode.ENFORCE)
    right: list[JsonValue] = []
    for value in (make_full_example(policy.check, _OPTIONAL), make_minimal_example(policy.check)):
        if (
            value is not ABSENT
            and _try_example(strict, value, decide) == "right"
            and not any(are_equal(value, other) for other in right)
        ):
            right.append(value)
    wrong: dict[str, Wrong] = {}
    slips = islice(_list_slips(policy.check, right[0] if right else ABSENT), _TRIED)
    for kind, value, what in sorted(slips, key=lambda slip: _KINDS.index(slip[0])):
        fate = "right" if kind in wrong or len(wrong) == most_wrong else _try_example(strict, value, decide)
        if fate != "right":
            wrong[kind] = Wrong(value, what, fate)
    return Lesson(tuple(right), tuple(wrong.values()))


def _try_example(policy: ToolPolicy, value: JsonValue, decide: Decide) -> str:
    """`right` for a call that is forwarded byte for byte, '' for one that is repaired, else the code of its refusal."""
    text = dumps(value)
    call = ToolCall(policy.tool, Document(text, value), "lesson", Conversation("lesson", Rung.HEADER))
    match decide(call, policy):
        case Forward(checked):
            return "right" if checked.arguments == text and not checked.repairs and not checked.warnings else ""
        case Reject(failure):
            return failure.violations[0].code.name if failure.violations else failure.code.name


# --- mistakes of models -----------------------------------------------------------------------------------------------
def _list_slips(check: Check, right: JsonValue) -> Iterator[tuple[str, JsonValue, str]]:
    """(kind, wrong value, mistake in words) for the likely mistakes with a right value, most frequent first."""
    if not isinstance(right, dict):
        return
    for path, value in _places(right):
        if (slip := _OF_TYPE.get(name_json_type(value))) is not None:
            kind, make, what = slip
            yield kind, _with(right, path, make(value)), f"{'.'.join(map(str, path))}: {what}"
    parts = [*check.root.always]
    for key in right:
        node = next((part.properties[key] for part in parts if key in part.properties), None)
        for kind, wrong, what in _list_limit_slips(node, right[key]) if node is not None else ():
            yield kind, {**right, key: wrong}, f"{key}: {what}"
    for key in sorted(list_required(parts) & right.keys()):
        yield "missing", {name: value for name, value in right.items() if name != key}, f"{key} is missing"
    if _UNKNOWN not in list_declared(parts):
        yield "unknown", {**right, _UNKNOWN: True}, f"{_UNKNOWN} is not a parameter of this tool"


def _places(right: dict[str, JsonValue]) -> Iterator[tuple[Pointer, JsonValue]]:
    """The members of a value, followed by their own members."""
    yield from (((key,), value) for key, value in right.items())
    for key, inner in right.items():
        if isinstance(inner, dict):
            yield from (((key, name), value) for name, value in inner.items())


def _with(right: dict[str, JsonValue], path: Pointer, wrong: JsonValue) -> JsonValue:
    if len(path) == 1:
        return {**right, path[0]: wrong}
    return {**right, path[0]: {**right[str(path[0])], path[1]: wrong}}


def _in_quotes(value: JsonValue) -> str:
    return dumps(value).decode()


# JSON type -> kind, the wrong value, its mistake in words
_OF_TYPE: Final[dict[str, tuple[str, Callable[[JsonValue], JsonValue], str]]] = {
    "integer": ("number", _in_quotes, "a number takes no quotes"),
    "number": ("number", _in_quotes, "a number takes no quotes"),
    "boolean": ("boolean", _in_quotes, "true and false take no quotes"),
    "array": ("array", _in_quotes, "a list is JSON, not a text that holds JSON"),
    "object": ("object", _in_quotes, "an object is JSON, not a text that holds JSON"),
}


def _list_limit_slips(node: Node, value: JsonValue) -> Iterator[tuple[str, JsonValue, str]]:
    site = read_facts(node).site
    if site.choices is not None and isinstance(value, str):
        yield "choice", f"{value}_or_else", "only the values that are listed are known"
    for part in node.always:
        if (limit := part.get("maximum")) is not None and not isinstance(limit, bool):
            yield "range", int(make_decimal(limit)) + 1, f"at most {_in_quotes(limit)}"
        if (limit := part.get("minimum")) is not None and not isinstance(limit, bool):
            yield "range", int(make_decimal(limit)) - 1, f"at least {_in_quotes(limit)}"
