"""Makes docs/repair.md out of the rule table, the published schema of the config and the cases of the never list.

python -m tests.docs.repair    writes the page (`make docs`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from proxy.core.model.work import REPAIRING
from proxy.core.rules.rules import PLUMBING_KEYS, RULES, Rule
from tests.core.test_never import REFUSED, UNTOUCHED
from tests.core.test_rules import APPLIES, LEAVES

PAGE: Final = Path(__file__).parents[2] / "docs" / "repair.md"

_HEAD: Final = """\
# Repairs: what may happen to a call's arguments

**A valid call is never touched, an invalid one is repaired only where the schema leaves exactly one meaning, and
everything else is refused with an answer that lets a model fix it in one try.**

```mermaid
flowchart LR
  call[arguments] --> judge{{valid?}}
  judge -- yes --> same[the very bytes that came]
  judge -- no --> rules[each rule proposes another value]
  rules --> one{{exactly one is valid?}}
  one -- yes --> again[the whole is judged again and sent]
  one -- no --> refused[refused, with an answer to act on]
```

A proposal counts only if it makes the value acceptable and no other rule of the same rank proposes a different one.
Numbers keep their text, keys their order, integers are exact at any size. Every repair is recorded as rule and path,
never with its value, in the `Tool-Repairs` header, the log line and a metric.

Of a valid call one thing alone changes: where an integer is asked, `4.0` is spelt `4`, those bytes and no others,
unless `repair.rules.integral_float: off`. Numbers with an exponent stay as they came.

This page is made from the rule table (`proxy/core/rules/rules.py`); a test holds the two together.

## Levels and switches

`repair: standard` in `defaults`, a tool or a route sets the level: `off` (none), `basic`, `standard` or `lenient`. A
rule is on from the level in its row on. `repair: {{level: standard, rules: {{yes_no: true}}}}` switches single rules
beside it. On tools that an MCP server lists, {listed} is on from `standard` on, because some servers list a key as
required that has a default; elsewhere only by name.

A property has the last word in its own schema: `x-repair: off` leaves it and everything below it as sent, a list
(`x-repair: [string_to_integer, drop_null_optional]`) leaves just those rules of the level on. A name that is no rule is
a mistake found when the schema is loaded.

## Null, and tools that change something

On a tool that updates, null may mean "clear this field": taken as not sent, the call would report success and change
nothing. So `drop_null_optional`, `empty_optional`, `null_word_optional` and `default_optional` are off

- for tools named update, upsert, patch, edit, set, modify, assign, clear, unset, delete, remove, purge, erase, wipe,
  truncate or destroy; on routes that take PATCH alone; for a call with an argument that names such an action
  (`{{"action": "update"}}` where the schema lists it);
- for texts (`""`, `"None"`) at a property that narrows down what is touched: where, filter, condition, criteria,
  predicate, selector, query.

The operator has the last word: a rule switched on by name (`repair: {{rules: {{drop_null_optional: on}}}}`) holds for a
tool whatever its name, `x-null: drop` or `x-null: refuse` in a property's schema for that property.

`drop_keys` names the keys that `drop_unknown` may remove where the schema refuses them (at `lenient`: {plumbing}).
"""

# One row of a table, which may not be broken.
_LEAKS: Final = (
    "| `refuse` | refused (VAL-013) where it ends in a closing tag of a call whose opening tag it does not hold, or "
    "where its tags do not match and name a declared property that the call lacks; other loose tags and template "
    "tokens (`<\\|channel\\|>`) are a warning |"
)

_UNKNOWN: Final = """
## Unknown keys

| `unknown_keys` | what happens to a key the schema does not declare |
|---|---|
| `schema` | what the schema says: refused under `additionalProperties: false`, else forwarded |
| `warn` | forwarded, and reported as a warning (VAL-005) where the schema declares keys |
| `refuse` | refused (VAL-005) even where the schema leaves others open; `key_case` may repair it first |
| `forward` | forwarded even where the schema forbids it, for the tool to judge |

Nothing is unknown where a schema declares no key at all, has `patternProperties`, or names a schema for every other
key.

## Markup of the call inside a value

Where a client's parser loses its place, the rest of a call lands in a string argument (`...</payload></invoke>`),
passes every schema and corrupts data unnoticed.

| `leaked_markup` | what happens to a text that holds markup of the tool call itself |
|---|---|
{leaks}
| `warn` | a warning, whatever was found |
| `off` | not looked for |

Tags that match, as in files of HTML and XML, and what stands in Markdown code pass. Nothing is cut out of a text: the
answer says which value it is, and to send the parameters apart.

## The rules

Each row ends with a call that the rule repairs and one that it leaves to the refusal; both are tests.
"""

_UNIONS: Final = """
## Unions

In `anyOf`, `oneOf` and lists of types a branch that takes the value as it is wins, and where text is legal no text is
changed. Otherwise exactly one branch may take the value after repair: a property that every branch pins by `const` or
`enum` chooses first, and where two branches give different values the call is refused with both readings (VAL-012).

No rule gives a value another type where its own type is legal: what is refused there is refused for another reason,
such as a bound, and a change of type would only get around it.

## Text that is no JSON

The rules on text come into play only after strict parsing failed, one class at a time, and never where braces or
quotes do not balance: a truncated call is refused as truncated. They take off what stands around the value or respell
one token; none is invented, dropped or moved. The result must parse strictly, so it obeys every limit. The same classes
apply to JSON text inside a string (`parse_json_string`).

## Bounds

One call's repair takes at most {work:,} steps (about a second, hundreds of times what the largest ordinary call takes).
Beyond that it is refused as it was sent, and the answer says so.

## Never

Each line is held by cases of `tests/core/test_never.py`, at every level unless a rule above says else. Refused:

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
        yield f"\n### {title}\n\n| rule | level | change | exact condition | repairs | refuses |"
        yield "|---|---|---|---|---|---|"
        yield from (_row(rule) for rule in RULES.values() if rule.kind == kind)


def _row(rule: Rule) -> str:
    does, leaves = _examples(rule.name)
    level = "MCP routes" if rule.level == "listed" else f"`{rule.level}`"
    return f"| `{rule.name}` | {level} | {_cell(rule.change)} | {_cell(rule.condition)} | {does} | {leaves} |"


# Tool names have no arguments: the name sent, the tool it stands for, and a name that stands for none.
NAMES: Final = {
    "tool_name_trim": ("functions.get_weather:0", "get_weather", "function.get_weather"),
    "tool_name_fold": ("getWeather", "get_weather", "getTheWeather"),
}


# Final outputs come as a text, which these rules read: what is sent, what becomes of it, and what is left.
OUTPUTS: Final = {
    "embedded_json": ('Here is the result: {"a":1}', '{"a":1}', 'Either {"a":1} or {"a":2}'),
}


def _examples(rule: str) -> tuple[str, str]:
    """A call that a rule repairs, with what becomes of it, and one that it leaves, out of the tests."""
    if rule in NAMES or rule in OUTPUTS:
        sent, made, left = (NAMES | OUTPUTS)[rule]
        return f"{_code(sent)} -> {_code(made)}", _code(left)
    if rule not in APPLIES or rule not in LEAVES:
        raise SystemExit(f"The rule {rule!r} has no case in APPLIES and LEAVES of tests/core/test_rules.py yet.")
    _, sent, made = APPLIES[rule][0]
    return f"{_code(sent)} -> {_code(made)}", _code(LEAVES[rule][0][1])


def _code(text: str) -> str:
    """A text in code; one with backquotes stands between two."""
    shown = _cell(text.replace("\n", "\\n")) or "(no body)"
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _listed(reasons: Iterable[str]) -> Iterator[str]:
    for reason in reasons:
        cases = dict.fromkeys(sent for _, sent in (*REFUSED.get(reason, ()), *UNTOUCHED.get(reason, ())) if sent)
        shown = ", ".join(f"`{_shown(sent)}`" for sent in list(cases)[:3])
        yield f"- {reason}: {shown}"


def _shown(sent: str) -> str:
    return sent.strip().replace("\n", "\\n").replace("`", "'")


def page() -> str:
    """The whole page."""
    plumbing = ", ".join(f"`{key}`" for key in sorted(PLUMBING_KEYS))
    parts = [
        _HEAD.format(plumbing=plumbing, listed=", ".join(_only_listed())) + _UNKNOWN.format(leaks=_LEAKS).rstrip("\n"),
        *_rules(),
        _UNIONS.format(work=REPAIRING).rstrip("\n") + "\n",
        *_listed(REFUSED),
        "\nForwarded as the very bytes that came:\n",
        *_listed(UNTOUCHED),
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
