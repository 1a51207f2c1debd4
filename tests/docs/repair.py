"""Makes docs/repair.md and docs/reference/rules.md out of the rule table, and docs/evidence/repairs.md out of the cases
that the tests hold.

python -m tests.docs.repair    writes the pages (`make docs`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from proxy.core.model.work import REPAIRING
from proxy.core.rules.rules import LEVEL_MEANINGS, RULES, Rule
from tests.core.test_never import REFUSED, UNTOUCHED
from tests.core.test_rules import APPLIES, LEAVES
from tests.corpora.run_repair import count_rules

DATA: Final = Path(__file__).parents[1] / "data"
PAGE: Final = Path(__file__).parents[2] / "docs" / "repair.md"
RULES_PAGE: Final = PAGE.parent / "reference" / "rules.md"
EVIDENCE: Final = PAGE.parent / "evidence" / "repairs.md"

_HEAD: Final = """\
# Repairs

**A valid call is never changed. An invalid call is repaired only if the schema leaves exactly one meaning.**
The proxy rejects everything else with an answer that lets a model fix it in one try.

A repair reads only what is stated: the schema, a tool's annotations, the HTTP method, the config, and the fixed
vocabulary of tool-call protocols. It never reads the meaning of a name or a description, with one closed exception: ten
verbs that begin the name of a reading tool (below).

```mermaid
flowchart LR
  call[arguments] --> judge{{valid?}}
  judge -- yes --> same[forward the same bytes]
  judge -- no --> rules[each notation reads the value]
  rules --> one{{exactly one is valid?}}
  one -- yes --> again[validate the whole again, then forward]
  one -- no --> refused[reject, with an answer to act on]
```

Most rules are **notations**: `read` returns the value and its spelling, and `encode` turns both back into what was
sent. A reading counts only if it is valid, and two different readings reject the call. Numbers keep their text, keys
keep their order, integers are exact at any size. The `Tool-Repairs` header, the log line and a metric record each
repair as rule and path, never its value.

One thing changes in a valid call: if the schema requires an integer, `4.0` is forwarded as `4` (`integral_float`).
Numbers with an exponent are not changed.

## Levels and switches

`repair: standard` in `defaults`, a tool or a route sets the level:

{levels}

At `standard` nothing that was sent is lost. `lenient` also accepts the likely reading.
`repair: {{level: standard, rules: {{yes_no: true}}}}` switches single rules. {listed} is on from `standard` for
tools that an MCP server lists, because some servers require keys that have a default.

In a property's own schema `x-repair: off` switches all rules off there and below. A list (`x-repair:
[string_to_integer, drop_null_optional]`) leaves only those rules of the level on. Loading rejects unknown names.

## Identifier style

`key_case`, `enum_case`, `enum_fold` and `tool_name_fold` compare names by their parts. A part ends at a separator
(`-`, `_`, `.`, space), before a capital that follows a small letter, and between letters and digits. It also ends
before the last capital of a run, if a small letter follows. Two names match if their parts are equal without case and
exactly one declared name matches. Parts are never joined: `re_sign` is not `resign`, and `m_1_12` is not `m_11_2`. A
name of one part that differs only in case needs three letters or more and no digit. The members of an enum must also
share one style of capitals.

## Null at an optional key

Models send null for "not given", but on a tool that updates, null may mean "clear this field". The proxy leaves out a
null that the schema rejects at an optional key only in these cases:

- The tool is stated only to read: its server says `readOnlyHint: true`, or its HTTP method is GET or HEAD.
- The tool is stated only to add (`destructiveHint: false` written out) and the key has no `default`.
- The tool's name begins with one of ten verbs: get, list, search, find, read, fetch, query, describe, count, show.
- The config says so: `x-null: drop` in the property's schema, or the policy's `null_optional: drop`.

`destructiveHint: true`, PATCH, PUT, DELETE and `x-null: refuse` overrule all but the last. An empty text or a word such
as `"None"` is a value, never nothing. The log reports the first refused null of each tool
(`null refused at an optional key`), with the config line that changes it.
"""

# One row of a table, which may not be broken.
_LEAKS: Final = (
    "| `refuse` | rejected (VAL-013) if it ends in a call's closing tag without the opening one, or if its unmatched "
    "tags name a declared property that the call lacks. Other loose tags and template tokens (`<\\|channel\\|>`) give "
    "a warning |"
)

_UNKNOWN: Final = """
## Unknown keys

| `unknown_keys` | a key the schema does not declare is |
|---|---|
| `schema` | rejected under `additionalProperties: false`, otherwise forwarded |
| `warn` | forwarded, with a warning (VAL-005) if the schema declares keys |
| `refuse` | rejected (VAL-005) even if the schema allows it; `key_case` may repair it first |
| `forward` | forwarded even if the schema forbids it |

A key is never unknown if the schema declares no key, has `patternProperties`, or has a schema for every other key.

## Markup of the call inside a value

If a client's parser fails, the rest of a call can become part of a string argument (`...</payload></invoke>`) and pass
every schema.

| `leaked_markup` | a text that holds markup of the tool call itself is |
|---|---|
{leaks}
| `warn` | a warning, whatever was found |
| `off` | not looked for |

Matching tags (HTML, XML) and Markdown code pass. The proxy removes nothing: the answer names the value and tells the
model to send the parameters separately.

## The rules

The exact change and condition of each rule: [reference/rules.md](reference/rules.md).

{names}
"""

_RULES_HEAD: Final = """\
# Every repair rule

Levels and switches: [repair.md](../repair.md). A call that each rule does not repair:
[evidence/repairs.md](../evidence/repairs.md#calls-that-each-rule-leaves). `make docs` makes this page from the rule
table (`proxy/core/rules/rules.py`).
"""

_USES: Final = """\
# Repairs: effects of the rules, and calls that none repairs

The rules: [repair.md](../repair.md).

## Effects of each rule

Uses of each rule at `lenient` over the sets of `tests/data` whose right arguments are known: reported failures,
hand-made calls with one meaning and with two, real calls of models. "Other": repaired faithfully, but the model meant
another call. "Two meanings": repaired, although the call has two meanings and `standard` refuses it.
`make corpora` prints the same over the whole collections.

| rule | right | wrong | other | two meanings |
|---|---|---|---|---|
"""


def _uses() -> Iterator[str]:
    counted = count_rules(DATA)
    for rule, uses in counted.items():
        if uses.total():
            yield f"| `{rule}` | {uses['right']} | {uses['wrong']} | {uses['other']} | {uses['likely']} |"
    unused = ", ".join(f"`{rule}`" for rule, uses in counted.items() if not uses.total())
    yield f"\nNot used there: {unused}."


_UNIONS: Final = """
## Unions

In `anyOf`, `oneOf` and lists of types, a branch that accepts the unchanged value wins. If text is legal, no text is
changed. Otherwise exactly one branch may accept the repaired value. A property that every branch pins by `const` or
`enum` chooses first. Two branches with different values are rejected with both readings (VAL-012).

No rule changes a value's type if that type is legal: that would only evade another limit, such as a bound.

## Text that is not JSON

The text rules run only after strict parsing failed, one class at a time, and never if braces or quotes do not
balance: a truncated call is rejected as truncated. They only strip surrounding text or rewrite a single token. No
token is added, removed or reordered. The result must parse strictly. They apply to JSON text inside a string too
(`parse_json_string`).

## Bounds

A call whose repair needs more than {work:,} steps (about a second, hundreds of times the largest ordinary call) is
rejected as it was sent, and the answer says so.
"""


_COST: Final = """
## Cost of rejecting

These calls of the collected sets have one meaning for a person and are rejected, because no stated fact proves it. In
return, of 297 shared calls with two meanings none passes at `standard` (42 before), debatable ones aside.

| no longer read | rejected at `standard` | also at `lenient` | wrong on two-meaning calls before |
|---|---|---|---|
| one free text as a list (`wrap_text` by name) | rf-030, rf-094, rf-126, w-025 | | 16 |
| null on a tool that states nothing (`null_optional`) | rf-123, ff-45 | | 1 |
| an empty text or a word for null | rf-143, ff-43 | | 0 |
| a number as free text (at `lenient` still read) | rf-137 | | 7 |
| `input` as a wrapper | ff-33 | | 0 |
| other words as wrappers, a lone value in a wrapper | | rf-033, rf-084, ff-31 | 5 |
| names that end alike (`aliases`) | | ff-39, w-058, w-059 | 1 |
| keys of clients (`drop_keys` in the config) | | rf-082, rf-083 | 3 |
| two words with a comma | | rf-127 | 0 |
| the schema's shape around a value | | rf-102 | 1 |
"""

_LEFT: Final = """
## Calls that each rule leaves

A call that the rule does not touch, so it is rejected; more cases: `tests/core/test_rules.py`.

| rule | call |
|---|---|
"""


def _left() -> Iterator[str]:
    for name in RULES:
        yield f"| `{name}` | {_code(_find_refused(name))} |"


_NEVER: Final = """
## Never

Cases of `tests/core/test_never.py`, rejected at every level unless a rule above says otherwise:

"""


def _only_listed() -> list[str]:
    return [f"`{name}`" for name, rule in RULES.items() if rule.level == "listed"]


_KINDS: Final = {
    "value": "Values",
    "key": "Keys and whole arguments",
    "text": "Text",
    "name": "Tool names",
    "output": "Final outputs",
}


def _rules() -> Iterator[str]:
    for kind, title in _KINDS.items():
        yield f"\n## {title}\n\n| rule | level | change | exact condition |"
        yield "|---|---|---|---|"
        yield from (_row(rule) for rule in RULES.values() if rule.kind == kind)


def _row(rule: Rule) -> str:
    return f"| `{rule.name}` | {_level(rule.level)} | {_cell(rule.change)} | {_cell(rule.condition)} |"


def _level(level: str) -> str:
    return {"listed": "MCP routes", "named": "by name"}.get(level, f"`{level}`")


def _names() -> str:
    """The rules by the level from which on they are on."""
    levels = dict.fromkeys(rule.level for rule in RULES.values())
    return "\n".join(
        f"- {_level(level)}: {', '.join(f'`{rule.name}`' for rule in RULES.values() if rule.level == level)}"
        for level in levels
    )


# Tool names have no arguments: the name sent, the tool it means, and a name that means none.
NAMES: Final = {
    "tool_name_trim": ("functions.get_weather:0", "get_weather", "function.get_weather"),
    "tool_name_fold": ("getWeather", "get_weather", "getTheWeather"),
}


# Final outputs come as a text, which these rules read: what is sent, what becomes of it, and what is left.
OUTPUTS: Final = {
    "embedded_json": ('Here is the result: {"a":1}', '{"a":1}', 'Either {"a":1} or {"a":2}'),
}


def _find_refused(rule: str) -> str:
    """A call that a rule leaves to the refusal, out of the tests."""
    if rule in NAMES or rule in OUTPUTS:
        return (NAMES | OUTPUTS)[rule][2]
    if rule not in APPLIES or rule not in LEAVES:
        raise SystemExit(f"The rule {rule!r} has no case in APPLIES and LEAVES of tests/core/test_rules.py yet.")
    return LEAVES[rule][0][1]


def _code(text: str) -> str:
    """A text in code; one with backquotes has two around it."""
    shown = _cell(text.replace("\n", "\\n")) or "(no body)"
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _listed(reasons: Iterable[str]) -> Iterator[str]:
    for reason in reasons:
        cases = dict.fromkeys(sent for _, sent in (*REFUSED.get(reason, ()), *UNTOUCHED.get(reason, ())) if sent)
        shown = ", ".join(f"`{_shown(sent)}`" for sent in list(cases)[:2])
        yield f"- {reason}: {shown}"


def _shown(sent: str) -> str:
    return sent.strip().replace("\n", "\\n").replace("`", "'")


def _levels() -> str:
    return "\n".join(f"- `{level}`: {meaning}" for level, meaning in LEVEL_MEANINGS.items())


def page() -> str:
    """The page of what the rules may do."""
    parts = [
        _HEAD.format(listed=", ".join(_only_listed()), levels=_levels())
        + _UNKNOWN.format(leaks=_LEAKS, names=_names()).rstrip("\n"),
        _UNIONS.format(work=REPAIRING).rstrip("\n"),
    ]
    return "\n".join(parts) + "\n"


def rules_page() -> str:
    """The page of the rules, one by one."""
    return "\n".join([_RULES_HEAD.rstrip("\n"), *_rules()]) + "\n"


def evidence() -> str:
    """The page of what the rules did over the collections, and of what none of them does."""
    parts = [
        _USES.rstrip("\n"),
        *_uses(),
        _COST.rstrip("\n"),
        _LEFT.rstrip("\n"),
        *_left(),
        _NEVER.rstrip("\n") + "\n",
        *_listed(REFUSED),
        "\nForwarded as the very bytes that came:\n",
        *_listed(UNTOUCHED),
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    RULES_PAGE.write_text(rules_page(), encoding="utf-8")
    EVIDENCE.write_text(evidence(), encoding="utf-8")
