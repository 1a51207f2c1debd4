"""Which rule allows or denies a call to its caller. Pure.

`allow` is a list of rules; a call is allowed if one of them fits. So a condition that cannot be judged never allows
anything. `deny` is a list of rules that come first; there a condition that cannot be judged counts as met.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.core.contract.listed_tool import USUAL_HINTS, Hints
from proxy.core.contract.toolname import list_wrapped
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, CheckedCall, Document, JsonValue, Pointer, ToolCall
from proxy.extensions.access.core.settings import AccessRule

# --- paths in arguments as services may read them ---------------------------------------------------------------------
# Paths in arguments as services may read them: escapes decoded, look-alikes folded, `.` and `..` resolved. Pure.
#
# A rule about arguments holds for the sent text and for each reading of it, so that `/data/../etc/passwd` and
# `/data/%2e%2e/etc/passwd` are not below `/data/`. Services differ in their rewritings (one only decodes escapes, one
# reads `\` as a letter), so a path is read after each of them. Keys of maps are read like values. The readings do not
# cover facts that only the service knows: links in its file system, names that it expands (`~`, `$HOME`), and file
# systems that ignore case. Nor do they cover rare spellings: `%u002e`, other characters that look like a slash,
# invisible characters within `..`.

# The most rewritings in a row; a text that still changes after them is refused.
_MOST_REWRITTEN: Final = 8
# The most work for the readings of one call's arguments, in characters: those of each form, and a few for each value. A
# text of 1 MiB may have eight forms.
_MOST_WORK: Final = 8 * 1024 * 1024
_OF_A_VALUE: Final = 4
# RFC 3986 section 3: the scheme and the authority, which hold no path.
_BEFORE_PATH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
# A tab or the end of a line, which readers of URLs leave out (WHATWG URL); any other control character is unclear.
_LEFT_OUT: Final = re.compile(r"[\t\n\r]")
# A segment of dots as some services read it: with a path parameter, with a blank behind.
_DOTS: Final = re.compile(r"\.\.? *(;[^/]*)?")
_PARAMETER: Final = re.compile(r"(?<![^/])(\.\.? *);[^/]*")
_BLANK: Final = re.compile(r"(?<![^/])(\.\.?) +(?![^/])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class UnclearPathError(ValueError):
    """A path without a clear meaning: escaped too often, not UTF-8, or with a control character."""


class _Budget:
    """The rest of the work that the readings of one call may take."""

    def __init__(self) -> None:
        self._left = _MOST_WORK

    def spend(self, work: int) -> None:
        """Raises UnclearPathError where too little is left."""
        self._left -= work
        if self._left < 0:
            raise UnclearPathError("it can be read in too many ways")


def list_readings(value: JsonValue) -> Sequence[JsonValue]:
    """A value with the paths in it as services may read them, one reading after the other. Raises UnclearPathError."""
    return _list_readings(value, _Budget())


def _list_readings(value: JsonValue, budget: _Budget) -> Sequence[JsonValue]:
    if isinstance(value, str):
        return _list_path_readings(value, budget)
    if isinstance(value, list):
        aligned = _align([_list_readings(item, budget) for item in value], budget)
        return [list(reading) for reading in aligned]
    if isinstance(value, dict):
        keys = [_list_path_readings(key, budget) for key in value]
        if len({reading for found in keys for reading in found}) < sum(map(len, keys)):
            raise UnclearPathError("two keys may be the same")
        aligned = _align([*keys, *(_list_readings(item, budget) for item in value.values())], budget)
        return [dict(zip(reading[: len(keys)], reading[len(keys) :], strict=True)) for reading in aligned]
    return [value]


def _align(parts: Sequence[Sequence[JsonValue]], budget: _Budget) -> list[list[JsonValue]]:
    """The readings of parts side by side; one that has fewer keeps its last."""
    most = max(map(len, parts), default=1)
    budget.spend(most * len(parts) * _OF_A_VALUE)
    return [[part[min(at, len(part) - 1)] for part in parts] for at in range(most)]


def _list_path_readings(text: str, budget: _Budget) -> list[str]:
    """The readings of a text, each once: after any of the rewritings, without `.`, `..` and empty segments. One without
    a slash or dot segment is not a path and stays. Raises UnclearPathError."""
    forms, new = [text], [text]
    budget.spend(len(text))
    for _ in range(_MOST_REWRITTEN):
        rewritten = dict.fromkeys(rewrite(form) for form in new for rewrite in _REWRITINGS)
        new = [form for form in rewritten if form not in forms]
        budget.spend(sum(map(len, new)))
        if not new:
            found = [
                _list_dot_readings(form, budget) if "/" in form or _DOTS.fullmatch(form) else [text] for form in forms
            ]
            return list(dict.fromkeys(chain.from_iterable(found)))
        forms += new
    raise UnclearPathError("it is escaped too often")


def _list_dot_readings(text: str, budget: _Budget) -> list[str]:
    """Returns a path as each service resolves it. Some drop the part from `;` on (Tomcat), some a trailing blank
    (Windows). So `..;x` and `.. ` are `..` to them and a name to others."""
    forms = [text]
    for pattern in (_PARAMETER, _BLANK):
        forms += [form for form in (pattern.sub(r"\1", form) for form in forms) if form not in forms]
    budget.spend(len(text) * (len(forms) - 1))
    return list(map(resolve_path, forms))


def resolve_path(path: str) -> str:
    """A path without `.`, `..` and empty segments. Raises UnclearPathError."""
    if _CONTROL.search(path):
        raise UnclearPathError("it has a control character")
    head = found[0] if (found := _BEFORE_PATH.match(path)) else ""
    path = path[len(head) :]
    kept: list[str] = []
    steps = path.split("/")
    for step in steps:
        if step == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif step not in ("", ".") and (step != ".." or not path.startswith("/")):
            kept.append(step)
    is_folder = steps[-1] in ("", ".", "..") and bool(kept)
    return head + ("/" if path.startswith("/") else "") + "/".join(kept) + ("/" if is_folder else "")


# --- rewritings of a text by services, before they read a path --------------------------------------------------------
def _decode(text: str) -> str:
    if "%" not in text:
        return text
    try:
        return unquote_to_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8")
    except UnicodeDecodeError:
        raise UnclearPathError("its escapes are not UTF-8") from None


def _fold_path(text: str) -> str:
    """The compatibility form, in which a fullwidth `．`, `／` or `％` is the plain one."""
    return unicodedata.normalize("NFKC", text)


def _replace_backslashes(text: str) -> str:
    return text.replace("\\", "/")


def _leave_out(text: str) -> str:
    return _LEFT_OUT.sub("", text)


_REWRITINGS: Final[tuple[Callable[[str], str], ...]] = (_decode, _fold_path, _replace_backslashes, _leave_out)


# --- which rule allows or denies a call to its caller -----------------------------------------------------------------
_NOTHING: Final[Mapping[str, JsonValue]] = {}


@value_class
class Identity:
    """The proven identity of a caller: the name of a static `token`, or the `issuer` of a signed one (its name in the
    config) with its `claims`. `certificate` holds the names in the client's certificate. '' and empty without proof."""

    token: str = ""
    issuer: str = ""
    claims: Mapping[str, JsonValue] = field(default_factory=lambda: _NOTHING, repr=False)
    certificate: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def key(self) -> str:
        """The same for one caller, '' for an unknown one. A signed token without a subject is its client's (RFC
        9068)."""
        if self.token:
            return f"token {self.token}"
        if self.issuer:
            subject = next((self.claims[name] for name in ("sub", "client_id", "azp") if name in self.claims), "")
            return f"issuer {self.issuer}\n{subject}"
        return "\n".join(("certificate", *sorted(self.certificate))) if self.certificate else ""


def find_scopes(claims: Mapping[str, JsonValue]) -> frozenset[str]:
    """The scopes of a token: `scope`, words in one text (RFC 8693 section 4.2), or `scp`, which Entra ID and Okta write
    as a list or a text."""
    found: set[str] = set()
    for name in ("scope", "scp"):
        value = claims.get(name)
        words = value.split(" ") if isinstance(value, str) else value if isinstance(value, list) else []
        found.update(word for word in words if isinstance(word, str) and word)
    return frozenset(found)


def find_claim(claims: Mapping[str, JsonValue], name: str) -> JsonValue:
    """Returns a claim by its name, or by its path with dots (`realm_access.roles`); ABSENT if it is missing."""
    if name in claims:
        return claims[name]
    found: JsonValue = claims
    for step in name.split("."):
        if not isinstance(found, Mapping) or step not in found:
            return ABSENT
        found = found[step]
    return found


def fits_caller(rule: AccessRule, caller: Identity) -> bool:
    """Returns whether the caller meets all conditions of a rule about callers."""
    claims = caller.claims
    return (
        _is_one_of(rule, caller)
        and all(_has_one_of(find_claim(claims, name), values) for name, values in rule.claims.items())
        and all(_list_values(find_claim(claims, name)) for _, name in rule.equals)
    )


def may_fit_caller(rule: AccessRule, caller: Identity) -> bool:
    """Returns whether a rule of `deny` may apply to a caller. A claim that is missing, or that holds a value of another
    type, may say anything."""
    return _is_one_of(rule, caller) and all(
        _may_have_one_of(find_claim(caller.claims, name), values) for name, values in rule.claims.items()
    )


def _is_one_of(rule: AccessRule, caller: Identity) -> bool:
    """Returns whether all conditions of a rule hold that do not depend on the caller's claims."""
    if rule.tokens and caller.token not in rule.tokens:
        return False
    if rule.issuers and caller.issuer not in rule.issuers:
        return False
    if rule.scopes and not find_scopes(caller.claims).issuperset(rule.scopes):
        return False
    return not rule.certificates or any(
        fnmatchcase(name, pattern) for name in caller.certificate for pattern in rule.certificates
    )


def lacks_scope(rule: AccessRule, caller: Identity) -> bool:
    """Returns whether a signed token would fit a rule if it had the rule's scopes."""
    return bool(caller.issuer) and not fits_caller(rule, caller) and fits_caller(replace(rule, scopes=()), caller)


def _has_one_of(claim: JsonValue, values: Sequence[JsonValue]) -> bool:
    """Returns whether a claim is one of some values, or a list that holds one of them; `1` is not `true`."""
    items = claim if isinstance(claim, list) else [claim]
    return any(type(item) is type(value) and item == value for item in items for value in values)


def _may_have_one_of(claim: JsonValue, values: Sequence[JsonValue]) -> bool:
    kinds = set(map(type, values))
    items = claim if isinstance(claim, list) else [claim]
    return _has_one_of(claim, values) or any(type(item) not in kinds for item in items)


def names_tool(rule: AccessRule, tool: str, hints: Hints | None) -> bool:
    """Returns whether a rule applies to a tool with these `hints`. One about hints never fits a tool that is not listed
    (None)."""
    return any(fnmatchcase(tool, pattern) for pattern in rule.tools) and (not rule.hints or _has_hints(rule, hints))


def may_name_tool(rule: AccessRule, tool: str, hints: Hints | None) -> bool:
    """Returns whether a rule of `deny` may apply to a tool. Names count without their case and without what a template
    left around them, because a server may ignore both. A hint counts as the server gives it and as a rule of `allow`
    reads it. A tool that is not listed may have any hints."""
    names = {tool, *map(_fold, list_wrapped(_fold(tool)))}
    patterns = {form for pattern in rule.tools for form in (pattern, _fold(pattern))}
    named = any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
    known = USUAL_HINTS if hints is None else {**USUAL_HINTS, **hints}
    return named and (
        hints is None or _has_hints(rule, hints) or all(known[name] is value for name, value in rule.hints.items())
    )


def _fold(name: str) -> str:
    """A tool's name without its case, the width of its characters, and blanks around it."""
    return unicodedata.normalize("NFKC", name).casefold().strip()


def _has_hints(rule: AccessRule, hints: Hints | None) -> bool:
    """Returns whether a listed tool has the hints of a rule. A destructive tool does not count as read-only."""
    if hints is None:
        return False
    known = {**USUAL_HINTS, **hints}
    known["readOnlyHint"] = known["readOnlyHint"] and not hints.get("destructiveHint", False)
    return all(known[name] is value for name, value in rule.hints.items())


def find_sent(checked: CheckedCall) -> JsonValue:
    """The arguments of a call as sent; ABSENT for bytes that the proxy cannot read, though the service might."""
    return checked.value if checked.enforced else find_arguments(checked.call)


def find_arguments(call: ToolCall) -> JsonValue:
    """The arguments of a call as they came; ABSENT where they cannot be read."""
    return call.arguments.value if isinstance(call.arguments, Document) else ABSENT


def fits_arguments(rule: AccessRule, value: JsonValue, claims: Mapping[str, JsonValue] = _NOTHING) -> bool:
    """Returns whether the arguments fit a rule, both as sent and with their paths resolved, for a caller with these
    `claims`. ABSENT never fits a rule about arguments. Neither does a key that differs from a key of the rule only in
    case: readers that ignore case (Go's `encoding/json`, .NET) take it for that key."""
    if not rule.arguments and not rule.equals:
        return True
    if value is ABSENT or _has_twin(value, rule.named):
        return False
    if not all(_equals_claim(_find_at(value, place), find_claim(claims, name)) for place, name in rule.equals):
        return False
    try:
        readings = (value, *list_readings(value))
        return all(check.accepts(reading) for check in rule.arguments for reading in readings)
    except UnclearPathError:
        return False


def _find_at(value: JsonValue, place: Pointer) -> JsonValue:
    """The value at a place below objects; ABSENT if there is none, and in a list, whose other items it would skip."""
    for step in place:
        value = value.get(step, ABSENT) if isinstance(value, dict) else ABSENT
    return value


def _equals_claim(value: JsonValue, claim: JsonValue) -> bool:
    """Returns whether a value is that of a claim, or one of its list; `1` is neither `true` nor `1.0`."""
    return any(type(value) is type(own) and value == own for own in _list_values(claim))


def _list_values(claim: JsonValue) -> list[JsonValue]:
    """The values of a claim that an argument may have. An empty text is none: a service may read it as any."""
    items = claim if isinstance(claim, list) else [claim]
    return [item for item in items if isinstance(item, str | int) and item != ""]


def _has_twin(value: JsonValue, named: Mapping[str, frozenset[str]]) -> bool:
    """Returns whether a key of an object is a named key in another case, or two keys are the same named key."""
    if isinstance(value, dict):
        written = Counter(key.casefold() for key in value)
        named_here = [key for key in value if key.casefold() in named]
        return (
            any(key not in named[key.casefold()] or written[key.casefold()] > 1 for key in named_here)
            or any(_has_twin(inner, named) for inner in value.values())
        )  # fmt: skip
    return isinstance(value, list) and any(_has_twin(inner, named) for inner in value)
