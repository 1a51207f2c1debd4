"""An example that may be copied: each value in it is whole, or a placeholder such as `<text as sent>` stands there.

A value that was sent is not repeated if it is long, if it is a secret, or if it holds a credential or a file path. The
values that the schema itself lists are the operator's words: they are never cut or hidden.
"""

from __future__ import annotations

from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.preview import clean_text, is_secret_path, sanitise_value
from proxy.core.display.secrets import mask_credentials
from proxy.core.json.jsontext import dumps_known, name_json_type
from proxy.core.model.values import ABSENT, FeedbackLimits, JsonValue, Pointer
from proxy.core.rules.facts import list_declared, nodes_at, read_facts

# The values of an example that are looked at, and the characters of one that the schema lists.
_MOST_VALUES: Final = 400
_LONGEST_LISTED: Final = 400


def make_copyable(check: Check, value: JsonValue, sent: JsonValue, limits: FeedbackLimits) -> JsonValue:
    """An example in which every value is whole or a placeholder; `ABSENT` if it has too many values. Of `sent`, whose
    parts the example holds by identity, no long part is repeated."""
    if value is ABSENT or (sanitise_value(value, limits) == value and len(dumps_known(value)) <= limits.max_preview):
        return value
    copy = _Copy(check, sent, limits)
    made = copy.show(value, ())
    return made if copy.left >= 0 else ABSENT


def is_placeholder(value: JsonValue) -> bool:
    """Returns whether a value is written like a placeholder."""
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


class _Copy:
    """Shows the values of one example."""

    def __init__(self, check: Check, sent: JsonValue, limits: FeedbackLimits) -> None:
        self.check = check
        self.limits = limits
        self.left = _MOST_VALUES
        self.parts: set[int] = set()  # the lists and objects that were sent, by identity
        self.texts: set[str] = set()  # the texts that were sent and look like placeholders
        stack = [sent]
        while stack:
            item = stack.pop()
            if isinstance(item, dict | list):
                self.parts.add(id(item))
                stack += item.values() if isinstance(item, dict) else item
            elif isinstance(item, str) and is_placeholder(item):
                self.texts.add(item)

    def show(self, value: JsonValue, path: Pointer) -> JsonValue:
        self.left -= 1
        if self.left < 0 or value is None or isinstance(value, bool):
            return value
        if isinstance(value, dict | list):
            return self.show_members(value, path)
        if isinstance(value, str) and is_placeholder(value) and value not in self.texts:
            return value
        is_secret = is_secret_path(path, self.limits)
        if (not is_secret and sanitise_value(value, self.limits) == value) or self.is_listed(value, path):
            return value
        is_path = isinstance(value, str) and not is_secret and mask_credentials(value) == value
        is_path = is_path and clean_text(str(value), len(str(value)), self.limits) != value
        return "<path as sent>" if is_path else f"<{_NOUNS.get(name_json_type(value), 'number')} as sent>"

    def show_members(self, value: dict[str, JsonValue] | list[JsonValue], path: Pointer) -> JsonValue:
        """An object or a list; one of many characters that was sent is not repeated."""
        if value and id(value) in self.parts and len(dumps_known(value)) > self.limits.max_preview:
            return f"<{_NOUNS[name_json_type(value)]} as sent>"
        if isinstance(value, list):
            return [self.show(item, (*path, index)) for index, item in enumerate(value)]
        shown: dict[str, JsonValue] = {}
        for key, item in value.items():
            name = key if self.is_known(key, path) else "<key as sent>"
            if name in shown:
                name = f"<key {len(shown) + 1} as sent>"
            shown[name] = self.show(item, (*path, key))
        return shown

    def is_known(self, key: str, path: Pointer) -> bool:
        """Returns whether a key is shown whole: one that the schema declares, or a short one."""
        is_plain = len(key) <= self.limits.max_preview and clean_text(key, len(key), self.limits) == key
        return is_plain or key in list_declared(nodes_at(self.check, path))

    def is_listed(self, value: JsonValue, path: Pointer) -> bool:
        """Returns whether the schema lists a value of its place as one that it takes."""
        if isinstance(value, str) and len(value) > _LONGEST_LISTED:
            return False
        return any(value in (read_facts(node).site.choices or ()) for node in nodes_at(self.check, path))


_NOUNS: Final = {"string": "text", "array": "list", "object": "object"}
