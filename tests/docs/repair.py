"""Makes docs/repair.md out of the rule table, the published schema of the config and the cases of the never list.

python -m tests.docs.repair    writes the page (`make docs`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from proxy.core.repair import MAX_WORK
from proxy.core.rules import LEVELS, PLUMBING_KEYS, RULES, Rule, rules_for
from tests.core.test_never import REFUSED, UNTOUCHED

PAGE: Final = Path(__file__).parents[2] / "docs" / "repair.md"

_HEAD: Final = """\
# Repairs: what may happen to a call's arguments

**A valid call is never touched, an invalid one is repaired only where the schema leaves exactly one meaning, and
everything else is refused with an answer that lets a model fix it in one try.**

Arguments that satisfy the schema go to the tool as the very bytes that came. Only what the schema refuses is a
candidate for repair: each rule below proposes another value, the schema judges the proposal, and it counts only if it
makes the value acceptable and no other rule of the same rank proposes a different one. The repaired whole is judged
again before it is sent. Numbers keep their text, keys their order, integers are exact at any size. Every repair is
recorded as rule and path, never with its value, in the `Tool-Repairs` header, the log line and a metric.

This page is made from the rule table (`proxy/core/rules.py`); a test holds the two together.

## Levels and switches

`repair: standard` in `defaults`, a tool or a route sets the level; `repair: {level: standard, rules: {yes_no: true}}`
switches single rules on or off beside it. The levels grow, each has the rules of the one before:

| level | rules |
|---|---|
"""

_PROPERTY: Final = """
One property has the last word in its own schema: `x-repair: off` leaves it and everything below it as it was sent, and
a list (`x-repair: [string_to_integer, drop_null_optional]`) leaves just those rules of the level on there. A name in
the list that is no rule is a mistake found when the schema is loaded.

`drop_keys` names the keys that `drop_unknown` may remove where the schema refuses them (at `lenient`: {plumbing}).
"""

_UNKNOWN: Final = """
## Unknown keys

| `unknown_keys` | what happens to a key the schema does not declare |
|---|---|
| `schema` | what the schema says: refused under `additionalProperties: false`, else forwarded |
| `warn` | forwarded, and reported as a warning (VAL-005) where the schema declares keys |
| `refuse` | refused (VAL-005) even where the schema leaves others open; `key_case` may repair it first |

Objects whose schema declares no key at all, has `patternProperties`, or names a schema for every other key are open on
purpose: nothing is unknown there.

## The rules
"""

_UNIONS: Final = """
## Unions

`anyOf`, `oneOf` and lists of types have one rule. A branch that takes the value as it is wins. Where text is legal,
no text is changed. Otherwise exactly one branch may take the value after repair: a property that every branch pins by
`const` or `enum` chooses first, and where two branches give different values the call is refused with both readings
(VAL-012). `integral_float` never rewrites a valid number inside a union.

No rule gives a value another type where its own type is legal: what is refused there is refused for another reason,
such as a bound, and a change of type would only get around it.

## Text that is no JSON

The rules on text come into play only after strict parsing failed, one class at a time, and never where braces or
quotes do not balance: a truncated call is refused as truncated. What they give must parse strictly, so it obeys every
limit. A rule takes off what stands around the value or respells one token; no token is invented, dropped or moved.
The same classes apply to JSON text inside a string (`parse_json_string`).

## Bounds

One call's repair takes at most {work:,} steps (about a second of work, hundreds of times what the largest ordinary
call takes), whatever its body and schema. Beyond that it is refused as it was sent, and the answer says so.

## Never

Each line is held by cases of `tests/core/test_never.py`, at every level unless a rule above says else. Refused:

"""


def _levels() -> Iterator[str]:
    below: frozenset[str] = frozenset()
    for level in LEVELS:
        added = [f"`{name}`" for name in RULES if name in rules_for(level) - below]
        before = f"`{LEVELS[LEVELS.index(level) - 1]}` and " if below else ""
        yield f"| `{level}` | {before + ', '.join(added) if added else 'none: what the schema refuses is refused'} |"
        below = rules_for(level)


_KINDS: Final = {
    "value": "Values",
    "key": "Keys and whole arguments",
    "text": "Text",
    "name": "Tool names",
}


def _rules() -> Iterator[str]:
    for kind, title in _KINDS.items():
        yield f"\n### {title}\n\n| rule | level | change | exact condition |\n|---|---|---|---|"
        yield from (_row(rule) for rule in RULES.values() if rule.kind == kind)


def _row(rule: Rule) -> str:
    return f"| `{rule.name}` | `{rule.level}` | {_cell(rule.change)} | {_cell(rule.condition)} |"


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
        _HEAD.rstrip("\n"),
        *_levels(),
        _PROPERTY.format(plumbing=plumbing) + _UNKNOWN.rstrip("\n"),
        *_rules(),
        _UNIONS.format(work=MAX_WORK).rstrip("\n") + "\n",
        *_listed(REFUSED),
        "\nForwarded as the very bytes that came:\n",
        *_listed(UNTOUCHED),
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
