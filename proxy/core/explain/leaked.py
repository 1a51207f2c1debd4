"""Markup of a tool call that leaked into one of its values.

Models write calls as text: `<invoke>`, `<parameter name="x">`, `<|channel|>`. If a client's parser loses its place, the
rest of the call lands in a string argument, passes every schema and corrupts data without anyone noticing. A text is
refused if that is certain:

  * it ends in a closing tag of a call whose opening tag it does not hold: `...</payload>\\n</invoke>`;
  * its tags do not match, and they name a declared property that the call lacks:
    `...</content>\\n<parameter name="tags">`.

A text that is nothing but such tags is judged by what they mean, however loosely they are spelt: `</ in voke>`,
`</vendor:parameter>`, `</vendor parameter>`.

Any other loose tag or template token is a warning. Text about markup passes: tags that match, and what is in
Markdown code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Set
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.preview import clean_text
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import JsonValue, Pointer, Violation
from proxy.core.rules.facts import list_declared

# Tags of tool calls, as the formats of Claude, Qwen, GLM, DeepSeek, MiniMax and others spell them.
_CALL_TAGS: Final = frozenset(
    ["invoke", "function_calls", "function_call", "function", "tool_call", "tool_calls", "tool_use", "parameter",
     "arg_key", "arg_value"]
)  # fmt: skip
_NAMESPACE: Final = r"(?:antml:|minimax:|[|｜]DSML[|｜])?"
_TAG: Final = re.compile(rf"<(?P<close>/?){_NAMESPACE}(?P<name>[A-Za-z_][\w-]*)(?P<rest>[^<>]*)>")
# Which parameter a tag names: `<parameter name="x">`, `<parameter=x>`, `<arg_key>x</arg_key>`.
_NAMED: Final = re.compile(r"""(?:\s+name\s*=\s*|=)["']?([\w.-]+)""")
_ARG_KEY: Final = re.compile(rf"<{_NAMESPACE}arg_key>\s*([\w.-]+)\s*<")
# Tokens of chat templates: `<|channel|>`, `<|im_end|>`, `<｜tool▁calls▁end｜>`.
_TOKEN: Final = re.compile(r"<[|｜][A-Za-z_▁]{1,40}[|｜]>")
_CLOSING_TOKEN: Final = re.compile(r"<[|｜](?:[\w▁]*[_▁])?(?:end|call|return|eot_id)[|｜]>\Z")
# A tag of a call with separators in it, also behind a vendor's prefix, and a text of only such tags.
_LOOSE: Final = (
    r"<\s*(?P<close>/?)\s*(?P<name>[A-Za-z|｜](?:[\w .:/|｜-]{0,60}?\w)?)\s*(?P<rest>(?:\bname\s*)?=[^<>]*)?>"
)
_SEPARATORS: Final = re.compile(r"[\W_]+")
_LOOSE_TAG: Final = re.compile(_LOOSE)
_TAGS_ALONE: Final = re.compile(rf"(?:\s*{re.sub(r'[(][?]P<[a-z]+>', '(?:', _LOOSE)}\s*)+")
_BARE_NAMES: Final = {name.replace("_", ""): name for name in _CALL_TAGS}
_CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_MOST: Final = 20
# A longer text is searched only at its end, the usual place of a leak.
_LONGEST: Final = 200_000
# A longer text is not looked through for loosely spelt tags.
_LONGEST_TAGS: Final = 2_000


def find_leaked_markup(check: Check, value: JsonValue, *, refuse: bool) -> Iterator[Violation]:
    """VAL-013 for texts with markup of the call itself, at most 20: errors where sure and `refuse`, else warnings."""
    known = list_declared(check.root.always)
    absent = frozenset(known - value.keys()) if isinstance(value, dict) else frozenset[str]()
    found = 0
    for path, text in _texts(value):
        leak = _find_leak(text, known, absent) if "<" in text else None
        if leak is not None and found < _MOST:
            found += 1
            markup, is_certain, parameter = leak
            name = clean_text(str(path[-1]), 60) if path else ""
            quoted = clean_text(markup, 60)
            message = f"Field '{name}' holds markup of the tool call itself: {quoted}"
            without = "without the tags of the call"
            hint = f"Send only the text of '{name}', {without}, and every parameter separately."
            if parameter:
                hint = (
                    f"Send '{clean_text(parameter, 60)}' as a separate parameter, and the text of '{name}' {without}."
                )
            severity = Severity.ERROR if refuse and is_certain else Severity.WARNING
            expected = "text without markup of the call"
            yield Violation(codes.LEAKED_MARKUP, path, message, expected, hint, severity, quoted=quoted)


def _texts(value: JsonValue) -> Iterator[tuple[Pointer, str]]:
    stack: list[tuple[Pointer, JsonValue]] = [((), value)]
    while stack:
        path, current = stack.pop()
        if isinstance(current, str):
            yield path, current
        elif isinstance(current, dict):
            stack.extend(((*path, key), item) for key, item in reversed(current.items()))
        elif isinstance(current, list):
            stack.extend(((*path, index), item) for index, item in reversed(list(enumerate(current))))


def _spell_strictly(tag: re.Match[str]) -> str:
    """A loosely spelt tag of a call in its strict spelling; any other tag as it is."""
    words = _SEPARATORS.split(tag["name"].lower())
    name = next((_BARE_NAMES[bare] for at in range(len(words)) if (bare := "".join(words[at:])) in _BARE_NAMES), None)
    rest = tag["rest"] or ""
    space = " " if rest and not rest.startswith("=") else ""
    return tag[0] if name is None else f"<{tag['close']}{name}{space}{rest}>"


def _find_leak(text: str, known: Set[str], absent: frozenset[str]) -> tuple[str, bool, str] | None:
    """A call's markup in a text, whether it is certain, and the property that it names; None for any other text."""
    text = _CODE.sub(" ", text[-_LONGEST:]).rstrip()
    if len(text) <= _LONGEST_TAGS and _TAGS_ALONE.fullmatch(text):
        text = _LOOSE_TAG.sub(_spell_strictly, text)
    opened: Counter[str] = Counter()
    loose: list[str] = []
    names: list[str] = []
    last = ""
    for tag in _TAG.finditer(text):
        name = tag["name"].lower()
        if (name not in _CALL_TAGS and tag["name"] not in known) or tag["rest"].endswith("/"):
            continue
        if name == "function" and not tag["close"] and not tag["rest"]:  # `std::vector<function>`
            continue
        if not tag["close"]:
            opened[name] += 1
            if name == "parameter" and (named := _NAMED.match(tag["rest"])) is not None:
                names.append(named[1])
        elif opened[name]:
            opened[name] -= 1
        else:
            loose.append(tag[0])
            last = tag[0] if name in _CALL_TAGS and tag.end() == len(text) else ""
    names += _ARG_KEY.findall(text)
    unclosed = [name for name, count in opened.items() if count > 0 and name in _CALL_TAGS]
    token = _TOKEN.search(text)
    if last:
        return last, True, ""
    missing = [name for name in names if name in absent]
    if missing and (loose or unclosed):
        return loose[0] if loose else f"<{unclosed[0]}", True, missing[0]
    if token is not None:
        return token[0], _CLOSING_TOKEN.search(text) is not None and len(_TOKEN.findall(text)) == 1, ""
    of_calls = [tag for tag in loose if tag[2:-1].rpartition(":")[2].strip("|｜") in _CALL_TAGS]
    return (of_calls[0] if of_calls else f"<{unclosed[0]}", False, "") if of_calls or unclosed else None
