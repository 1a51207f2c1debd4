"""Which rule allows a call to its caller. Pure.

`allow` is a list of rules; a call is allowed if one of them fits. So a condition that cannot be judged never allows
anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Final

from proxy.core.contract.listed_tool import USUAL_HINTS, Hints
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, CheckedCall, Document, JsonValue, ToolCall
from proxy.extensions.access.core.paths import UnclearPathError, list_readings
from proxy.extensions.access.core.settings import AccessRule

_NOTHING: Final[Mapping[str, JsonValue]] = {}


@value_class
class Identity:
    """The proven identity of a caller: the name of a static `token`, the `issuer` of a signed one (its name in the
    config) with its `claims`, and the names in the client's `certificate`. '' and empty without proof."""

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
    """A claim by its name, or by its path with dots (`realm_access.roles`); ABSENT where it is missing."""
    if name in claims:
        return claims[name]
    found: JsonValue = claims
    for step in name.split("."):
        if not isinstance(found, Mapping) or step not in found:
            return ABSENT
        found = found[step]
    return found


def fits_caller(rule: AccessRule, caller: Identity) -> bool:
    """Whether all conditions of a rule about its caller hold."""
    if rule.tokens and caller.token not in rule.tokens:
        return False
    if rule.issuers and caller.issuer not in rule.issuers:
        return False
    if rule.scopes and not find_scopes(caller.claims).issuperset(rule.scopes):
        return False
    if rule.certificates and not any(
        fnmatchcase(name, pattern) for name in caller.certificate for pattern in rule.certificates
    ):
        return False
    return all(_has_one_of(find_claim(caller.claims, name), values) for name, values in rule.claims.items())


def lacks_scope(rule: AccessRule, caller: Identity) -> bool:
    """Whether a signed token would fit a rule if it had the rule's scopes."""
    return bool(caller.issuer) and not fits_caller(rule, caller) and fits_caller(replace(rule, scopes=()), caller)


def _has_one_of(claim: JsonValue, values: Sequence[JsonValue]) -> bool:
    """Whether a claim is one of some values, or a list that holds one of them; `1` is not `true`."""
    items = claim if isinstance(claim, list) else [claim]
    return any(type(item) is type(value) and item == value for item in items for value in values)


def names_tool(rule: AccessRule, tool: str, hints: Hints | None) -> bool:
    """Whether a rule is about a tool with these `hints`. A rule about hints never fits a tool that is not listed
    (None)."""
    return any(fnmatchcase(tool, pattern) for pattern in rule.tools) and (not rule.hints or _has_hints(rule, hints))


def _has_hints(rule: AccessRule, hints: Hints | None) -> bool:
    """Whether a listed tool has the hints of a rule. A destructive tool does not count as read-only."""
    if hints is None:
        return False
    known = {**USUAL_HINTS, **hints}
    known["readOnlyHint"] = known["readOnlyHint"] and not hints.get("destructiveHint", False)
    return all(known[name] is value for name, value in rule.hints.items())


def find_sent(checked: CheckedCall) -> JsonValue:
    """The arguments of a call as they would be sent; ABSENT for bytes that the proxy cannot read, though the service
    might."""
    return checked.value if checked.enforced else find_arguments(checked.call)


def find_arguments(call: ToolCall) -> JsonValue:
    """The arguments of a call as they came; ABSENT where they cannot be read."""
    return call.arguments.value if isinstance(call.arguments, Document) else ABSENT


def fits_arguments(rule: AccessRule, value: JsonValue) -> bool:
    """Whether arguments fit a rule, as they stand and with their paths resolved. ABSENT never fits a rule about
    arguments. Neither does a key that differs from a key of the rule only in case, because readers that ignore case
    (Go's `encoding/json`, .NET) take it for the key of the rule."""
    if not rule.arguments:
        return True
    if value is ABSENT or _has_twin(value, rule.named):
        return False
    try:
        readings = (value, *list_readings(value))
        return all(check.accepts(reading) for check in rule.arguments for reading in readings)
    except UnclearPathError:
        return False


def _has_twin(value: JsonValue, named: Mapping[str, frozenset[str]]) -> bool:
    """Whether a key of an object is one of the named keys in another case, or two keys are the same named key."""
    if isinstance(value, dict):
        written = Counter(key.casefold() for key in value)
        named_here = [key for key in value if key.casefold() in named]
        return (
            any(key not in named[key.casefold()] or written[key.casefold()] > 1 for key in named_here)
            or any(_has_twin(inner, named) for inner in value.values())
        )  # fmt: skip
    return isinstance(value, list) and any(_has_twin(inner, named) for inner in value)
