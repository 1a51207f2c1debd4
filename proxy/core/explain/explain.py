"""Broken keywords -> violations a model can act on: code, place, what was expected, and a hint (docs/contract.md).

Single keywords are worded by the table of `wording.py`; unions are explained here, by their nearest branch. Then a
second pass (`misplaced.py`) looks at the whole: an unknown key that was meant for a missing one, a key in the wrong
place, a wrapper around the arguments. Deterministic; at most 100 violations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from proxy.core.check.validation import BrokenKeyword, Check
from proxy.core.contract.container import explain_dotted_name
from proxy.core.contract.policy import ToolPolicy, ToolServer
from proxy.core.display.graphemes import cut, cut_parts
from proxy.core.display.preview import clean_text, write_preview
from proxy.core.display.secrets import is_sensitive
from proxy.core.display.suggestions import fold_name, make_unknown_tool_failure
from proxy.core.explain.expectation import (
    add_own_words,
    describe_expectation,
    describe_types,
    list_choices,
    read_own_words,
)
from proxy.core.explain.misplaced import relate_fields
from proxy.core.explain.places import find_nodes_at, find_value
from proxy.core.explain.signature import write_signature
from proxy.core.explain.wording import (
    EXACTLY,
    OR_ANOTHER,
    OWN_WORDS,
    WORDS,
    make_choice_violation,
    make_missing_violation,
    make_other_violation,
    make_type_violation,
)
from proxy.core.json.jsontext import format_pointer, name_json_type
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import Failure, JsonProblem, JsonValue, Pointer, ToolCall, Violation
from proxy.core.rules.branches import Ambiguity, list_discriminators, list_shared_choices, select_branches
from proxy.core.rules.facts import list_declared, list_required, read_facts
from proxy.core.schema.nodes import Node

MAX_VIOLATIONS: Final = 100
_MAX_BRANCHES: Final = 6
_ROOM_FOR_BRANCHES: Final = 240
# A refused value is never left without a violation.
_REFUSED: Final = Violation(codes.CONSTRAINT, (), "The arguments break the tool's schema")
# How many characters of a name may name a container.
_LONGEST_NAME: Final = 400


def list_violations(check: Check, value: JsonValue, ambiguous: Iterable[Ambiguity]) -> tuple[Violation, ...]:
    """Everything that is wrong with a refused value, at most 100 findings.

    `ambiguous` are the places at which the repair engine would not choose; each has only VAL-012.
    """
    found: list[Violation] = []
    for broken in check.list_broken(value)[:MAX_VIOLATIONS]:  # each has a violation, or several
        found += _word_keyword(check, broken, find_value(value, broken.path), value, MAX_VIOLATIONS - len(found))
        if len(found) == MAX_VIOLATIONS:
            break
    if len(found) == MAX_VIOLATIONS or not found:  # a finding beyond the bound may be an error
        found = [replace(violation, severity=codes.ERROR) for violation in found] or [_REFUSED]
    unclear: dict[Pointer, Violation] = {}
    for entry in islice(ambiguous, MAX_VIOLATIONS):
        read = [f"{_show_reading(value, entry.path)} ({rule})" for rule, value in entry.options[:2]]
        quoted, message = " or ".join(read), "The value has more than one possible meaning"
        hint = f"It could mean {quoted}: send the one you mean in its proper type."
        unclear[entry.path] = Violation(codes.AMBIGUOUS, entry.path, message, hint=hint, quoted=quoted)
    if unclear:
        found = [violation for violation in found if violation.path not in unclear] + list(unclear.values())
    found = relate_fields(check, value, found)
    for index, each in enumerate(found):
        if _LEAVE_OUT in each.hint and each.path and isinstance(each.path[-1], str):  # a required one cannot be
            is_required = each.path[-1] in list_required(find_nodes_at(check, each.path[:-1]))
            hint = each.hint.replace(_LEAVE_OUT, "" if is_required else ", or leave it out")
            found[index] = replace(each, hint=hint)
    return tuple(found)


def _show_reading(value: JsonValue, path: Pointer) -> str:
    shown = write_preview(value, path=path)
    return shown if len(shown) <= _LONGEST_READING else f"<{name_json_type(value)}>"


_LONGEST_READING: Final = 40
_LEAVE_OUT: Final = ", or leave an optional field out"


# How the parser's reason begins -> what to do about it.
_NO_VALUE: Final = "Values are numbers, true, false, null, lists, objects, or texts in double quotes."
_JSON_HINTS: Final = {
    "duplicate key": "Send each key once.",
    "key must be a string": "Put keys and texts into double quotes.",
    "expected value": _NO_VALUE,
    "expected ident": _NO_VALUE,
    "trailing comma": "Leave out the comma before the closing bracket.",
    "trailing characters": "Send one JSON object with nothing after it. For several objects make one call for each.",
    "control character": "Escape line breaks and tabs inside texts.",
    "invalid escape": (
        'A backslash is legal only before one of " \\ / b f n r t, or before u and four digits. '
        "Remove it, or double it if the text holds a backslash."
    ),
    "nested deeper": "Send fewer levels of lists and objects.",
}


def explain_invalid_json(problem: JsonProblem) -> Violation:
    """VAL-004: the text is not strict JSON, with line and column; VAL-003 for a number that no double holds."""
    if problem.path is not None:
        message = "Number out of range: its size is beyond what a number can have"
        return Violation(
            codes.CONSTRAINT, problem.path, message, "a number between -1.8e308 and 1.8e308", "Send a smaller number."
        )
    where = f"{clean_text(problem.reason, 120)} at line {problem.line} column {problem.column}"
    hints = (hint for start, hint in _JSON_HINTS.items() if problem.reason.startswith(start))
    hint = next(hints, "Send one complete JSON object.")
    if "surrogate" in problem.reason:
        hint = "A \\u escape is half a character: write the character itself, or both halves."
    elif problem.truncated:
        hint = "The text ends in the middle: it looks truncated. Send the complete arguments again, shorter if need be."
    return Violation(codes.INVALID_JSON, (), f"Invalid JSON: {where}", "one JSON object", hint)


# --- one broken keyword ---------------------------------------------------------------------------------------------
def _word_keyword(check: Check, broken: BrokenKeyword, value: JsonValue, root: JsonValue, most: int) -> list[Violation]:
    """The violations of one keyword that a value breaks, at most so many; `root` is the whole value."""
    word = WORDS.get(broken.keyword, make_other_violation)
    found = list(islice(_union(check, broken, value, root, most) if broken.branches else word(broken, value), most))
    if not found:  # a broken keyword that nobody mentions would let the call pass
        found = list(make_other_violation(broken, value))
    severity, sensitive, speaks = _read_marks(check, broken)
    if speaks:
        found = [add_own_words(check, one, broken.node) for one in found]
    if (is_error := severity is codes.ERROR) and not sensitive:
        return found
    return [
        replace(one, severity=one.severity if is_error else severity, sensitive=sensitive or one.sensitive)
        for one in found
    ]


def _read_marks(check: Check, broken: BrokenKeyword) -> tuple[Severity, bool, bool]:
    """Returns a schema's marks on one of its keywords: its severity, `x-severity: warning` or `{keyword: severity}`
    (docs/reference/codes.md), whether its values are secret, and whether it has its own words for a value."""
    node, keyword, is_union = broken.node, broken.keyword, bool(broken.branches)
    memo: dict[tuple[int, str, bool], tuple[Severity, bool, bool]] = node.schemas.memos.setdefault("marks", {})
    marks = memo.get((id(node), keyword, is_union))
    if marks is None:
        written = node.get("x-severity")
        if isinstance(written, dict):
            written = written.get(keyword)
        severity = Severity(written) if written in ("warning", "info") else codes.ERROR
        speaks = not is_union and keyword in OWN_WORDS and (keyword == "required" or read_own_words(check, node) != "")
        marks = memo[id(node), keyword, is_union] = severity, is_sensitive(node), speaks
    return marks


# --- unions ---------------------------------------------------------------------------------------------------------
def _union(check: Check, broken: BrokenKeyword, value: JsonValue, root: JsonValue, most: int) -> Iterator[Violation]:
    """Explains a value that fits no branch: at the property that distinguishes branches, inside the nearest branch, or
    by VAL-011 with what each branch lacks."""
    branches = broken.node.any_of if broken.keyword == "anyOf" else broken.node.one_of
    if broken.keyword == "oneOf" and any(not lacks for lacks in broken.branches):
        fitting = [str(index + 1) for index, lacks in enumerate(broken.branches) if not lacks]
        message = f"The value fits more than one alternative ({', '.join(fitting)}), exactly one is allowed"
        yield Violation(codes.NO_BRANCH, broken.path, message, value=value)
        return
    if (undecided := _explain_undecided(broken, branches, value)) is not None:
        yield undecided
    elif (near := _nearest_branch(branches, broken, value)) is not None:
        for inner in broken.branches[near]:
            found = _word_keyword(check, inner, find_value(root, inner.path), root, most)
            yield from (_name_alternatives(one, branches) if one.path == broken.path else one for one in found)
    elif isinstance(value, (dict, list)):
        yield _no_branch(check, broken, branches, value, root)
    else:
        choices, kind = read_facts(broken.node).site.choices or (), name_json_type(value)
        if kind in {name_json_type(choice) for choice in choices}:
            yield make_choice_violation(broken.path, value, broken.node, choices)
        elif any(kind in read_facts(branch).site.types for branch in branches):
            yield _no_branch(check, broken, branches, value, root)
        else:
            yield make_type_violation(broken.path, value, broken.node)


def _name_alternatives(violation: Violation, branches: tuple[Node, ...]) -> Violation:
    """Returns the errors of one branch for a value, with the types that the other branches take."""
    phrases = list(dict.fromkeys(map(describe_expectation, branches)))
    named = " or ".join(phrases)
    if len(phrases) > _MAX_BRANCHES or len(named) > _ROOM_FOR_BRANCHES:
        named = " or ".join(dict.fromkeys(describe_types(read_facts(branch).site) for branch in branches))
    hint = violation.hint
    for exactly in EXACTLY:
        hint = hint.replace(exactly, OR_ANOTHER)
    return replace(violation, expected=named, hint=hint)


def _explain_undecided(broken: BrokenKeyword, branches: tuple[Node, ...], value: JsonValue) -> Violation | None:
    """The property that distinguishes all branches is missing, or names none of them."""
    if not isinstance(value, dict):
        return None
    named = list_discriminators(branches, value)
    if named and not any(value[key] in choices for key, listed in named for choices in listed):
        key, found = named[0]
        every = tuple(dict.fromkeys(choice for choices in found for choice in choices if isinstance(choice, str)))
        made = make_choice_violation((*broken.path, key), value[key], broken.node, every)
        return replace(made, keyword=broken.keyword)  # each choice has other fields
    absent = next(((key, choices) for key, choices in list_shared_choices(branches) if key not in value), None)
    if named or absent is None:
        return None
    key, choices = absent
    return make_missing_violation((*broken.path, key), list_choices(choices))


def _nearest_branch(branches: tuple[Node, ...], broken: BrokenKeyword, value: JsonValue) -> int | None:
    """The branch a discriminator names, else the only one that takes the value's type, or declares every sent key."""
    if len(broken.branches) != len(branches):
        return None
    named = select_branches(branches, value)
    if len(named) == 1:
        return branches.index(named[0])
    kind = name_json_type(value)
    fitting = [index for index, branch in enumerate(branches) if kind in read_facts(branch).site.types]
    if len(fitting) > 1 and isinstance(value, dict) and value:
        knowing = [index for index in fitting if value.keys() <= list_declared(branches[index].always)]
        fitting = knowing if len(knowing) == 1 else fitting
    return fitting[0] if len(fitting) == 1 and broken.branches[fitting[0]] else None


def _no_branch(
    check: Check, broken: BrokenKeyword, branches: tuple[Node, ...], value: JsonValue, root: JsonValue
) -> Violation:
    shown = [
        f"({number}) {cut_parts(write_signature(branch, 2), 160)}"
        for number, branch in enumerate(branches[:_MAX_BRANCHES], 1)
    ]
    more = [f"... {len(branches) - _MAX_BRANCHES} more"] if len(branches) > _MAX_BRANCHES else []
    found = enumerate(broken.branches[:_MAX_BRANCHES], 1)
    lacks = [f"({number}) {_lack(check, there, root)}" for number, there in found if there]
    return Violation(
        codes.NO_BRANCH,
        broken.path,
        "The value fits none of the alternatives",
        "; ".join(shown + more),
        "Missing in each: " + "; ".join(lacks) if lacks else "",
        value=value,
    )


def _lack(check: Check, broken_there: tuple[BrokenKeyword, ...], root: JsonValue) -> str:
    """Returns the errors of one branch, in a few words. The keywords of `_UNSAID` have their own message, because the
    accepted values of a place do not mention them."""
    words = []
    for broken in broken_there[:3]:
        where = cut(format_pointer(broken.path), 60) or "it"
        match broken.keyword:
            case "required":
                words.append(f"field '{cut(str(broken.detail), 60)}' missing")
            case "additionalProperties" | "unevaluatedProperties":
                names = [f"'{clean_text(str(name), 60)}'" for name in list(broken.detail or ())[:3]]
                words.append("unknown field " + ", ".join(names))
            case "anyOf" | "oneOf":
                many = "none" if all(broken.branches) else "more than one"
                words.append(f"{where} fits {many} of its alternatives")
            case keyword if keyword in _UNSAID or broken.node.never:
                first = _word_keyword(check, broken, find_value(root, broken.path), root, 1)[0]
                words.append(f"{where}: {cut(first.message, 100)}")
            case _:
                words.append(f"{where} is not {cut(describe_expectation(broken.node), 60)}")
    return ", ".join(words)


_UNSAID: Final = frozenset(
    ["dependentRequired", "dependencies", "propertyNames", "not", "contains", "minContains", "maxContains",
     "uniqueItems", "additionalItems", "items", "unevaluatedItems"]
)  # fmt: skip


# --- a call of a tool that the route does not know --------------------------------------------------------------------
def explain_unknown_tool(
    call: ToolCall, tools: Mapping[str, ToolPolicy], servers: tuple[ToolServer, ...] = ()
) -> Failure:
    """The failure of a call of a tool outside `tools`: the body names none, one like `Math.Add`, or an unknown one. Of
    several `servers` the one that the name's prefix means may be out of reach; no other server's tool is suggested."""
    if call.tool == "" and isinstance(call.arguments, JsonProblem):
        return Failure(
            codes.INVALID_ARGUMENTS, codes.INVALID_ARGUMENTS.meaning, (explain_invalid_json(call.arguments),)
        )
    start = fold_name(call.tool[:_LONGEST_NAME])
    heads = [name for name in tools if start.startswith(fold_name(name))]  # not all tools: there may be thousands
    found = [(head, policy.container) for head in heads if (policy := tools.get(head)) is not None]
    containers = {head: container for head, container in found if container is not None}
    server = next((each for each in servers if each.prefix and call.tool.startswith(each.prefix)), None)
    if server is not None and server.down:
        code = codes.UPSTREAM_UNAVAILABLE
        message = f"{code.meaning} (server '{server.name}' is out of reach: {server.down})"
        return Failure(code, message, details={"executed": "no"})
    known = list(tools)
    if server is not None:
        prefixes = tuple(each.prefix for each in servers if each.prefix)
        own = [name for name in known if name.startswith(server.prefix)]
        known = own or [name for name in known if not name.startswith(prefixes)]
    failure = explain_dotted_name(call.tool, containers) or make_unknown_tool_failure(call.tool, known)
    if call.tool:
        return failure
    why = "".join(f": {one.message}" for one in call.violations)
    return replace(failure, message=f"The call names no tool{why}.")
