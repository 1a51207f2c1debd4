"""The public API of the engine: compile a tool from its schema and a policy, then decide calls in this process.

    tool = compile_tool("book_table", {"type": "object", "properties": {"guests": {"type": "integer"}}})
    tool.decide('{"guests": "4"}')      # AcceptedCall(arguments=b'{"guests":4}', repairs=(...))
    tool.decide('{"guests": "many"}')   # RejectedCall(text="Validation failed ...", errors=(...))

These names and the fields of their values are covered by semantic versioning (docs/library.md). `proxy.core` exports
them. They do no I/O, know no clock, and load no HTTP library. The attempts of a conversation are not counted here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final, Literal

from proxy.core.check.validation import Check, SchemaError, compile_check
from proxy.core.contract.listed_tool import BadSchemaError, compile_listed
from proxy.core.contract.policy import LeakedMarkup, NullOptional, RepairPolicy, ToolPolicy, UnknownKeys
from proxy.core.decide import decide, prepare
from proxy.core.display.secrets import find_sensitive_names
from proxy.core.envelope.feedback import write_feedback
from proxy.core.envelope.view import show_violations
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsontext import (
    NO_ARGUMENTS,
    TRUSTED,
    TextLimits,
    find_at_pointer,
    format_pointer,
    parse,
    read_document,
)
from proxy.core.lint.contradictions import list_unsatisfiable
from proxy.core.lint.keywords import lint
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    Conversation,
    Failure,
    FeedbackLimits,
    Forward,
    JsonProblem,
    JsonValue,
    Pointer,
    Reject,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)
from proxy.core.rules.facts import list_mistaken_switches
from proxy.core.rules.rules import LEVELS, RULES, TEXT_RULES
from proxy.core.schema.definitions import find_definition
from proxy.core.schema.dialects import normalise
from proxy.core.schema.drafts import is_conditional
from proxy.core.schema.formats import NONE, USUAL, Formats

__all__ = [
    "AcceptedCall", "AppliedRepair", "CallError", "CallPolicy", "CompiledTool", "RejectedCall", "SchemaError",
    "compile_tool",
]  # fmt: skip

# JSON arguments: their text as the model wrote it, or a value that a JSON reader made of it.
Arguments = bytes | str | Mapping[str, Any]

_NO_CONVERSATION: Final = Conversation("", Rung.ADDRESS)


@value_class
class CallPolicy:
    """The settings of the operator for one tool. Keys and values have the meaning that docs/config.md gives them.

    `repair` is a level (`off`, `basic`, `standard`, `lenient`), `rules` switches single rules on or off by name
    (docs/reference/rules.md). `effect` states what the tool does: with `reads`, a refused null at an optional key is
    left out; with `changes`, the proxy fills nothing in. `formats`: whether `format` is asserted. `max_errors` and
    `max_chars` bound the text of a refusal, `max_bytes`, `depth` and `nodes` the arguments.
    """

    repair: str = "standard"
    rules: Mapping[str, bool] = field(default_factory=dict, hash=False)
    drop_keys: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict, hash=False)
    null_optional: Literal["reading", "stated", "drop", "refuse"] = "reading"
    unknown_keys: Literal["schema", "warn", "refuse", "forward"] = "schema"
    leaked_markup: Literal["refuse", "warn", "off"] = "refuse"
    effect: Literal["", "reads", "adds", "changes"] = ""
    formats: bool = True
    max_errors: int = 10
    max_chars: int = 2000
    max_bytes: int = 1024 * 1024
    depth: int = TextLimits().depth
    nodes: int = TextLimits().nodes


@value_class
class AppliedRepair:
    """One change to the arguments: the rule's name, and the place as a JSON Pointer (RFC 6901; '' is the root)."""

    rule: str
    path: str


@value_class
class CallError:
    """One error of the arguments, with the fields of an error in a `tool_result` answer (docs/contract.md).

    `code` is a code such as `VAL-001` (docs/reference/codes.md), `path` a JSON Pointer, `severity` is `error`,
    `warning` or `info`. `expected` and `hint` may be ''. `actual` shows what was sent, None if nothing was. Secrets
    are masked in each text.
    """

    code: str
    path: str
    message: str
    severity: str = "error"
    expected: str = ""
    hint: str = ""
    actual: str | None = field(default=None, repr=False)


@value_class
class AcceptedCall:
    """The call may go to its tool. `arguments` are the bytes to send: those of the caller unless `repairs` names a
    change. `warnings` are findings that do not block the call."""

    arguments: bytes = field(repr=False)
    repairs: tuple[AppliedRepair, ...] = ()
    warnings: tuple[CallError, ...] = ()

    @property
    def value(self) -> Any:
        """The arguments as `json.loads` reads them, made again at each access."""
        return json.loads(self.arguments)


@value_class
class RejectedCall:
    """The call may not go to its tool. `code` is the error code (docs/reference/codes.md), `text` is for the model: it
    names each error and says what to send instead. `errors` holds at most `max_errors` errors for programs."""

    code: str
    text: str
    errors: tuple[CallError, ...] = ()


class CompiledTool:
    """A tool whose schema is compiled. Several threads may use it at once; `decide` never waits for anything."""

    __slots__ = ("_policy", "_text_repairs")

    def __init__(self, policy: ToolPolicy) -> None:
        self._policy: Final = policy
        self._text_repairs: Final = policy.repair.rules & TEXT_RULES

    def __repr__(self) -> str:
        return f"CompiledTool({self.name!r})"

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self._policy.tool

    def decide(self, arguments: Arguments) -> AcceptedCall | RejectedCall:
        """Returns whether a call with these arguments may go to the tool; the same arguments get the same answer.

        Pass the text that the model wrote if you have it. The call is then sent byte for byte, and the strict reader
        refuses texts that two JSON readers could read differently (RFC 8259, RFC 7493). A value is written as JSON
        first. Raises TypeError or ValueError for a value that JSON cannot hold, such as a set or a circle, and nothing
        else.
        """
        policy, text = self._policy, _write_arguments(arguments)
        if len(text) > policy.max_body:
            message = f"The arguments are larger than the {policy.max_body} bytes that this tool takes."
            unread = ToolCall(policy.tool, JsonProblem("too large", 1, 1), "", _NO_CONVERSATION)
            return self._reject(unread, Failure(codes.BODY_TOO_LARGE, message))
        document = read_document(text, policy.text, self._text_repairs) if text.strip() else NO_ARGUMENTS
        raw = text if isinstance(document, JsonProblem) else b""
        call = ToolCall(policy.tool, document, "", _NO_CONVERSATION, raw)
        match decide(call, policy):
            case Forward(checked):
                repairs = tuple(AppliedRepair(made.rule, format_pointer(made.path)) for made in checked.repairs)
                return AcceptedCall(checked.arguments, repairs, _show_errors(checked.warnings, policy.feedback))
            case Reject(failure):
                return self._reject(call, failure)

    def prepare(self) -> None:
        """Writes the code that validates calls now instead of at the first call: 2 to 10 ms, a second for thousands of
        properties."""
        prepare(self._policy)

    def _reject(self, call: ToolCall, failure: Failure) -> RejectedCall:
        result = add_advice(ToolResult(call, failure, limits=self._policy.feedback), self._policy)
        return RejectedCall(failure.code.name, write_feedback(result), _show_errors(failure.violations, result.limits))


def compile_tool(
    name: str,
    schema: Mapping[str, Any],
    policy: CallPolicy = CallPolicy(),  # noqa: B008 - a frozen value
    *,
    is_trusted: bool = True,
) -> CompiledTool:
    """Compiles the schema of a tool's arguments.

    `schema` is JSON Schema (drafts 4, 6, 7, 2019-09 and 2020-12), or a tool definition of OpenAI, Anthropic, Google,
    AWS or MCP that holds it. It may refer only to itself. `is_trusted` False bounds the size and the patterns of a
    schema that comes from outside. Raises SchemaError, with the place in `path`, for a schema that cannot be used or
    that surely means more than it checks. Raises ValueError for a policy that names something unknown.
    """
    repair = _read_repairs(policy)
    try:
        written = parse(json.dumps(schema).encode(), TRUSTED)
    except TypeError as error:
        raise SchemaError(f"the schema holds a value that is not JSON: {error}") from None
    if isinstance(written, JsonProblem):
        raise SchemaError(f"the schema is not JSON: {written.reason}")
    found = find_at_pointer(written, find_definition(written)[0])
    check = _compile(found, USUAL if policy.formats else NONE, is_trusted=is_trusted)
    names = find_sensitive_names(check.schemas)
    return CompiledTool(
        ToolPolicy(
            tool=name,
            check=check,
            fingerprint="",
            unknown_keys=UnknownKeys(policy.unknown_keys),
            repair=repair,
            text=TextLimits(depth=policy.depth, nodes=policy.nodes),
            feedback=FeedbackLimits(max_errors=policy.max_errors, max_chars=policy.max_chars, secret_names=names),
            changes=policy.effect == "changes",
            adds=policy.effect == "adds",
            reads=policy.effect == "reads",
            max_body=policy.max_bytes,
            leaked_markup=LeakedMarkup(policy.leaked_markup),
        )
    )


# The valid words of a policy.
_CHOICES: Final[Mapping[str, Iterable[str]]] = {
    "repair": LEVELS, "null_optional": NullOptional, "unknown_keys": UnknownKeys, "leaked_markup": LeakedMarkup,
    "effect": ("", "reads", "adds", "changes"),
}  # fmt: skip


def _read_repairs(policy: CallPolicy) -> RepairPolicy:
    """Returns the allowed repairs. Raises ValueError for a policy that names something unknown."""
    for key, choices in _CHOICES.items():
        if (value := getattr(policy, key)) not in tuple(choices):
            raise ValueError(f"unknown {key} {value!r}: use one of {', '.join(filter(None, choices))}")
    if unknown := sorted(policy.rules.keys() - RULES.keys()):
        raise ValueError(f"unknown repair rule {unknown[0]!r}: docs/reference/rules.md lists the rules")
    return RepairPolicy.of(
        policy.repair,
        policy.rules,
        drop_keys=policy.drop_keys,
        null_optional=NullOptional(policy.null_optional),
        aliases=policy.aliases,
    )


def _compile(written: JsonValue, formats: Formats, *, is_trusted: bool) -> Check:
    if not isinstance(written, dict):
        raise SchemaError("the schema is not an object")
    if not is_trusted:
        try:
            return compile_listed(written, formats)
        except BadSchemaError as error:
            raise SchemaError(str(error)) from None
    check = compile_check(normalise(written)[0], formats=formats)
    for path, message in _list_faults(check):
        raise SchemaError(message, path)
    return check


def _list_faults(check: Check) -> Iterable[tuple[Pointer, str]]:
    """Yields keywords without effect and their likely meaning, as `check` of the command line reports them."""
    for node, keyword, names in list_mistaken_switches(check.schemas):
        wrong = "names no repair rule" if keyword == "x-repair" else "is neither drop nor refuse"
        yield (*node.path, keyword), f"{keyword} {wrong}: {names[0]!r}"
    for finding in lint(check.schemas):
        if finding.is_grave:
            yield finding.path, f"{finding.message}; {finding.hint}" if finding.hint else finding.message
    for node, message, hint in list_unsatisfiable(check):
        if not is_conditional(node.path):
            yield node.path, f"{message}; {hint}"


def _write_arguments(arguments: Arguments) -> bytes:
    """The arguments as the text of JSON. The strict reader refuses what `json` writes and RFC 8259 does not have."""
    if isinstance(arguments, bytes):
        return arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _show_errors(violations: tuple[Violation, ...], limits: FeedbackLimits) -> tuple[CallError, ...]:
    return tuple(
        CallError(one.code.name, each.path, each.message, one.severity.value, each.expected, each.hint, each.actual)
        for each in show_violations(violations, limits)[0]
        for one in (each.violation,)
    )
