"""Turns claims into violations: the place of a claim, its code, and the tool's words as they may be shown."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import Final

from proxy.core.display.graphemes import cut, escape
from proxy.core.display.preview import MASK, clean_text, is_secret_path
from proxy.core.display.secrets import is_secret_name, repeats_value
from proxy.core.explain.expectation import describe_expectation
from proxy.core.explain.places import find_value, list_members
from proxy.core.json.jsontext import dumps, name_json_type
from proxy.core.model import codes
from proxy.core.model.codes import ViolationCode
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, Absent, FeedbackLimits, JsonValue, Pointer, Violation
from proxy.core.schema.nodes import Node
from proxy.core.tool_errors.dialects import Dialect
from proxy.core.tool_errors.error_body import (
    ErrorBody,
    find_code_of_kind,
    find_code_of_words,
    find_expected_type,
    find_json_type,
    is_size,
)
from proxy.core.tool_errors.places import Arguments, Located
from proxy.core.tool_errors.readers import MOST_CLAIMS, Claim

_MOST_VIOLATIONS: Final = 20
LONGEST_WORDS: Final = 300
_LONGEST_NAME: Final = 80
_MOST_SECRETS: Final = 200
_MOST_VALUES: Final = 50_000
# The possible names of a field that is neither declared nor sent.
_NAME: Final = re.compile(r"[\w$@:.\[\]-]{1,64}")


@value_class
class Tool:
    """The tool that claims are compared with: the arguments, their visible form, and the secret texts among them.
    `doubtful`: the status does not suggest wrong arguments, so a claim needs words that are known."""

    arguments: Arguments
    limits: FeedbackLimits
    secrets: tuple[str, ...] | None
    doubtful: bool = False

    def show(self, words: str) -> str:
        """A tool's words on one line of at most 300 code points, without secrets; '' if those are too many."""
        if self.secrets is None:
            return ""
        words = mask_secrets(" ".join(words.split()), self.secrets)
        return cut(escape(clean_text(words, LONGEST_WORDS, self.limits)), LONGEST_WORDS)


def mask_secrets(words: str, secrets: tuple[str, ...]) -> str:
    """Words on one line with every secret in them masked. `secrets` come from `list_secrets`."""
    for secret in secrets:
        if len(secret) > 5:
            words = words.replace(secret, MASK)
        else:  # a short one is masked only if it is whole: it may be a part of many words
            words = re.sub(rf"(?<![^\W_]){re.escape(secret)}(?![^\W_])", MASK, words)
    return words


def list_secrets(sent: JsonValue, limits: FeedbackLimits) -> tuple[str, ...] | None:
    """Every text and number under a secret name, longest first, also as tools write it (quoted, on one line); None
    if there are too many to search for."""
    found: set[str] = set()
    queue: list[tuple[JsonValue, bool]] = [(sent, False)]
    for value, secret in queue:
        if secret and isinstance(value, str) and value.strip():
            found |= {" ".join(text.split()) for text in (value, dumps(value).decode("utf-8", "replace")[1:-1])}
        elif secret and value is not None and not isinstance(value, (bool, dict, list, Absent)):
            found.add(dumps(value).decode())
        queue += [
            (item, secret or (isinstance(step, str) and (step in limits.secret_names or is_secret_name(step))))
            for step, item in list_members(value)
        ]
        if len(queue) > _MOST_VALUES or len(found) > _MOST_SECRETS:
            return None
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


# --- from claims to violations --------------------------------------------------------------------------------------
@value_class
class _Finding:
    claim: Claim
    code: ViolationCode | None
    located: tuple[Located, ...]

    @property
    def is_whole(self) -> bool:
        """Returns whether it is about the arguments as a whole."""
        return all(one.path == () for one in self.located)

    @property
    def names_one(self) -> bool:
        """Returns whether it points at known arguments."""
        return not self.is_whole and all(one.known for one in self.located)


def list_findings(dialect: Dialect, answer: ErrorBody, tool: Tool) -> tuple[tuple[Violation, ...], str, bool] | None:
    """The violations that a dialect reads from an answer, one for each place, the tool's words as they may be shown,
    and whether it is about a type. None if the body does not use this dialect, or its words may not be about the
    arguments."""
    claims = list(dict.fromkeys(islice(dialect.read(answer), MOST_CLAIMS)))
    found = [finding for claim in claims if _is_believed(finding := _find(claim, tool), dialect, tool)]
    if not dialect.sure and any(finding.names_one for finding in found):
        # ASP.NET adds "The request field is required." to the errors of the fields of the request.
        found = [one for one in found if one.names_one or (one.is_whole and one.code is not codes.REQUIRED_MISSING)]
    if not found:
        return None
    violations: dict[tuple[str, Pointer], Violation] = {}
    for finding in found:
        for located in finding.located[:_MOST_VIOLATIONS]:
            violation = _violation(finding, located, tool)
            if _may_follow(violation, finding.claim, tool.arguments):
                violations.setdefault((violation.code.name, violation.path), violation)
    words = "; ".join(dict.fromkeys((finding.claim.sentence or finding.claim.words).strip(" ;") for finding in found))
    kinds = {*(finding.code for finding in found), *(violation.code for violation in violations.values())}
    return tuple(violations.values())[:_MOST_VIOLATIONS], tool.show(words), codes.TYPE_MISMATCH in kinds


# The type that a tool says it was given.
_GIVEN: Final = re.compile(r"(?:received|but got|, got) (?:an? )?(\w{1,20})")


def _find(claim: Claim, tool: Tool) -> _Finding:
    words = claim.words[:1000]
    code = claim.code or find_code_of_kind(claim.kind) or find_code_of_words(words)
    located = tool.arguments.locate(claim, code)
    if claim.got and code is codes.TYPE_MISMATCH and not all(one.known and not one.around for one in located):
        located = ()  # what the tool was given is somewhere, but not there
    if code is codes.REQUIRED_MISSING:
        located = tuple(one if one.around else _one_below(claim, one, tool) for one in located)
    if code is codes.TYPE_MISMATCH and len(located) == 1 and located[0].path and (given := _GIVEN.search(claim.words)):
        # The value of that type below a place that has another one itself (zod's `flatten`).
        below = tool.arguments.list_below(located[0].path, find_json_type(given[1]))
        if below:
            located = (Located(below[0], True) if len(below) == 1 else replace(located[0], around=True),)
    return _Finding(claim, code, located)


# A missing key that only the words name, as in AJV's and huma's "required property".
_NAMED: Final = re.compile(
    r"required property:? ['\"`]?([\w$.-]{1,120})['\"`]?|missing field [`'\"]([^`'\"]{1,120})"
    r"|'([^'\n]{1,120})' is a required property"
)


def _one_below(claim: Claim, located: Located, tool: Tool) -> Located:
    """Returns the missing key itself, if the claim names the object that lacks it. It is the key that the words name,
    or the only one that the schema requires (zod's `flatten` leaves out the depth)."""
    value = find_value(tool.arguments.sent, located.path)
    if not isinstance(value, dict):
        return located
    found = _NAMED.search(claim.words)
    if found is not None:
        name = found[1] or found[2] or found[3]
        beside = name in value or located.path[-1:] == (name,)
        return located if beside else Located((*located.path, name), located.known)
    lacking = {name for node in tool.arguments.nodes_at(located.path) for name in node.required} - set(value)
    return Located((*located.path, *lacking), True) if len(lacking) == 1 and located.path else located


# Keys of an error body that are not arguments, unless the tool declares one of that name.
_ENVELOPE: Final = frozenset(
    ["message", "messages", "msg", "error", "errors", "detail", "details", "title", "status", "statusCode", "code",
     "type", "reason", "description", "success", "instance", "timestamp", "path", "hint"]
)  # fmt: skip


def _is_believed(finding: _Finding, dialect: Dialect, tool: Tool) -> bool:
    located, worded = finding.located, finding.code is not None
    if any(not one.known and str(one.path[0]) in _ENVELOPE for one in located):
        return False
    if dialect.strict:
        is_whole = located != () and finding.is_whole
        return worded and (finding.names_one or (is_whole and not isinstance(tool.arguments.sent, dict)))
    return worded or (not tool.doubtful and (dialect.sure or finding.names_one))


# The meaning of a "required" rule for a value that was sent: null, an empty text, an empty list.
_LENGTHS: Final = {"string": codes.STRING_LENGTH, "array": codes.ARRAY_LENGTH}
_INSTEAD_OF_MISSING: Final = {**_LENGTHS, "null": codes.TYPE_MISMATCH}


def _may_follow(violation: Violation, claim: Claim, arguments: Arguments) -> bool:
    """Returns whether the schema would accept the advice of a violation. If not, only the tool's own words help."""
    path = violation.path
    if violation.code is codes.TYPE_MISMATCH:
        kind = find_json_type(claim.expected) or find_expected_type(claim.words)
        return not kind or arguments.may_hold(path, kind)
    if not path or not isinstance(path[-1], str):
        return True
    around = arguments.nodes_at(path[:-1])
    if violation.code is codes.REQUIRED_MISSING:
        is_closed = any(node.additional is not None and node.additional.never for node in around)
        return not is_closed or arguments.nodes_at(path) != []
    return violation.code is not codes.UNKNOWN_FIELD or not any(path[-1] in node.required for node in around)


def _violation(finding: _Finding, located: Located, tool: Tool) -> Violation:
    path = _path(located, tool)
    claim, value = finding.claim, find_value(tool.arguments.sent, path)
    nodes = tool.arguments.nodes_at(path)
    # A claim about a part says nothing about the value around it.
    code = codes.CONSTRAINT if located.around else _settle_code(finding, value)
    expected_type = find_json_type(claim.expected) or find_expected_type(claim.words)
    expected = "" if located.around else _describe_expected(code, expected_type, nodes, value)
    sensitive = is_secret_path(path, tool.limits) or any(
        node.get("writeOnly") is True or node.get("format") == "password" or node.get("x-sensitive") is True
        for node in nodes
    )
    sentence, place = claim.sentence or claim.words.strip(), claim.place
    if located.around and place is not None:
        inside = place if isinstance(place, str) else ".".join(map(str, place))
        sentence = sentence if inside in sentence else f"{inside}: {sentence}"
    words = tool.show(sentence)
    hint = f"The tool says: {words}" if words else ""
    name = cut(escape(clean_text(str(path[-1]), _LONGEST_NAME)), _LONGEST_NAME) if path else ""
    actual = "nothing" if value is ABSENT else name_json_type(value)
    template = (_MESSAGES if path else _WHOLE_MESSAGES).get(code, "The tool refuses this value")
    message = template.format(name=name, expected=expected.split(" (")[0] or "another type", actual=actual)
    return Violation(code, path, message, expected, hint, value=value, sensitive=sensitive)


def _path(located: Located, tool: Tool) -> Pointer:
    """The path of a violation. A place that is unknown here consists of the tool's words, and is shown as such."""
    if located.known:
        return located.path
    name = str(located.path[-1])
    if _NAME.fullmatch(name) is None or repeats_value(name, tool.arguments.sent):
        return located.path[:-1]  # the tool may repeat what it was sent, and places are in logs
    return tuple(cut(tool.show(step), _LONGEST_NAME) if isinstance(step, str) else step for step in located.path)


def _settle_code(finding: _Finding, value: JsonValue) -> ViolationCode:
    code, claim = finding.code, finding.claim
    if value is ABSENT:
        asks = code in (None, codes.TYPE_MISMATCH) and not finding.is_whole
        return codes.REQUIRED_MISSING if asks and not isinstance(claim.quoted, str) else code or codes.CONSTRAINT
    kind = name_json_type(value)
    if code is codes.REQUIRED_MISSING:
        if finding.located and finding.is_whole:
            return code
        return _INSTEAD_OF_MISSING[kind] if value in ("", [], None) else codes.CONSTRAINT
    if code in (codes.STRING_LENGTH, codes.ARRAY_LENGTH) or (code is codes.CONSTRAINT and is_size(claim.kind)):
        return _LENGTHS.get(kind, code)
    return code or codes.CONSTRAINT


def _describe_expected(code: ViolationCode, expected_type: str, nodes: list[Node], value: JsonValue) -> str:
    """Returns what the tool expects, in the schema's words where these say the same and more."""
    if code in (codes.UNKNOWN_FIELD, codes.INVALID_JSON):
        return ""
    declared = next(
        (words for node in nodes if (words := describe_expectation(node)) not in ("any value", "no value")), ""
    )
    if expected_type:
        return declared if declared.startswith(expected_type) else expected_type
    fits = code is codes.TYPE_MISMATCH and value is not ABSENT and declared.startswith(name_json_type(value))
    return "" if fits else declared  # "expected string, got string" does not help


# code -> message; the templates of Acode 007.b, without numbers that only the tool knows
_MESSAGES: Final[dict[ViolationCode, str]] = {
    codes.REQUIRED_MISSING: "Required field '{name}' is missing",
    codes.TYPE_MISMATCH: "Type mismatch: expected {expected}, got {actual}",
    codes.INVALID_JSON: "The tool could not read the arguments as JSON",
    codes.UNKNOWN_FIELD: "Unknown field '{name}'",
    codes.ARRAY_LENGTH: "The tool refuses the array's length or content",
    codes.PATTERN_MISMATCH: "Value doesn't match the tool's pattern", codes.ENUM_MISMATCH: "Invalid enum value",
    codes.STRING_LENGTH: "The tool refuses the string's length", codes.FORMAT_MISMATCH: "Invalid format",
}  # fmt: skip
# The same, if no field is named.
_WHOLE_MESSAGES: Final[dict[ViolationCode, str]] = {
    **_MESSAGES,
    codes.REQUIRED_MISSING: "A required field is missing",
    codes.UNKNOWN_FIELD: "An unknown field was sent",
}
