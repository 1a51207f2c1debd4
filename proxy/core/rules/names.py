"""What a name says by its words and letters: whether a call only reads, and where case has a meaning.

On a tool that changes something, null and an empty text may mean "clear this field"; on a tool that removes something,
a missing filter may mean "all". So such values count as not sent only where reading is all that a tool does, and in
part where it creates something. No list of verbs that change something is complete: a name has to say that it reads.

The case of quantities and unit symbols carries their meaning: `1M` is a month and `1m` a minute, `MB` a megabyte and
`Mb` a megabit. No rule folds the case of such a name.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import Final

from proxy.core.model.values import JsonValue
from proxy.core.model.work import remember_short
from proxy.core.schema.nodes import Node

# Splits a name into words: `updateIssue`, `update_issue` and `issues.update` hold the same verb.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_READS: Final = frozenset([
    "get", "list", "search", "find", "read", "fetch", "query", "lookup", "check", "count", "describe", "show", "scrape",
    "view", "browse", "retrieve", "inspect", "compare", "look", "calculate", "compute", "estimate", "analyze",
    "analyse", "geocode", "whois", "summarize", "translate",
])  # fmt: skip
# Words with which a verb of reading is another verb: `check_out`, `look_after`, `count_down`.
_PARTICLES: Final = frozenset({"in", "out", "down", "off", "after", "aloud"})
# The last word of a name such as `brave_web_search`.
_READS_AT_THE_END: Final = frozenset({"search", "lookup"})
_CREATES: Final = frozenset(["create", "add", "insert", "new", "make", "generate", "plan", "draft", "compose", "build"])
# Words that are verbs of changing wherever they stand in a name.
_CHANGES: Final = frozenset([
    "update", "patch", "edit", "set", "modify", "assign", "clear", "upsert", "save", "put", "replace", "change",
    "reassign", "configure", "write", "append", "rename", "move", "merge", "overwrite", "increment", "decrement",
    "enable", "disable", "toggle", "activate", "deactivate", "adjust", "apply", "restore", "revert", "undo", "resolve",
    "reject", "mark", "submit", "send", "publish", "notify", "invite", "subscribe", "unsubscribe", "execute", "exec",
    "trigger", "launch", "start", "restart", "resume", "install", "upload", "sync", "import", "store", "lock", "unlock",
    "grant", "buy", "sell", "sale", "pay", "enqueue", "hide", "mute", "share", "unassign", "switch", "resize",
    "withdraw", "deposit", "transfer", "alter", "allow", "rotate", "migrate", "provision", "rent", "auction", "rollout",
    "deploy", "redeem", "authorize", "approve",
])  # fmt: skip
_REMOVES: Final = frozenset([
    "delete", "remove", "purge", "erase", "wipe", "truncate", "destroy", "cancel", "revoke", "terminate", "kill",
    "stop", "prune", "archive", "close", "reset", "drop", "flush", "evict", "expire", "invalidate", "discard", "rid",
    "uninstall", "unregister", "deregister", "detach", "disconnect", "suspend", "ban", "block", "kick", "shutdown",
    "burn", "shred", "clean", "cleanup", "empty", "trash", "unlink", "decommission", "delist", "refund", "rollback",
    "forget", "unpin", "unpublish", "unshare", "unfollow", "unset", "dismiss", "abort", "exclude",
])  # fmt: skip
_CHANGING: Final = _CHANGES | _REMOVES
# Words behind which a name tells a second thing that the tool does: `get_or_create`.
_THEN: Final = frozenset({"and", "or", "then"})
_NARROWS: Final = frozenset(
    ["where", "filter", "filters", "condition", "conditions", "criteria", "predicate", "selector", "query"]
)
# A number followed by up to three letters, `5m`, `1 MB`; but hours, days, weeks and years have no twin in other case.
_QUANTITY: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?\s?(?![hdwyHDWY]\Z)[A-Za-zµμ]{1,3}")
# Symbols that take SI prefixes (some prefixes exist in either case), and bits and bytes with any prefix. The symbols
# are those of the SI brochure and IEC 80000-13.
_SYMBOLS: Final = "m|g|s|A|K|mol|cd|Hz|N|Pa|J|W|C|V|F|S|T|H|Wb|lm|lx|Bq|Gy|Sv|L|l|bar|eV|Wh|Ah|VA|Ω|b|B|bit|bps"
_PREFIXED: Final = re.compile(rf"(?:[mp](?:{_SYMBOLS})|[kmgtpe](?:i?b|bit)|[kmgt]i?bp?s)(?:/s)?", re.IGNORECASE)
# Spelt like a unit, but words: morning and afternoon. A lone capital never names the unit of its small letter.
_WORDS: Final = frozenset({"pm", "PM"})
_ALONE: Final = frozenset({"m", "cal", "Cal", "gal", "Gal"})
# Where one word of a longer name ends: `power_MW`, `10 Mb/s`, `powerMW`.
_PIECES: Final = re.compile(r"[^\s_/.-]+")


@remember_short
def split_words(name: str) -> tuple[str, ...]:
    """The words of a name in small letters: `startDate_2` has start, date and 2."""
    return tuple(map(str.lower, _WORD.findall(name)))


@remember_short
def changes_something(name: str) -> bool:
    """Whether the name of a tool or an action contains a verb that changes or removes something."""
    return not _CHANGING.isdisjoint(split_words(name))


@remember_short
def reads_only(name: str) -> bool:
    """Whether the name of a tool says that it reads, and no word of it that it does anything else."""
    words = split_words(name)
    if not words or not (words[0] in _READS or words[-1] in _READS_AT_THE_END):
        return False
    after = [word for before, word in pairwise(words) if before in _THEN]
    does_more = _CHANGING | _CREATES
    return does_more.isdisjoint(words) and _PARTICLES.isdisjoint(words[1:2]) and _READS.issuperset(after)


@remember_short
def creates_only(name: str) -> bool:
    """Whether the name of a tool says that it creates something, and no word of it that it does anything else."""
    words = split_words(name)
    return bool(words) and words[0] in _CREATES and _CHANGING.isdisjoint(words) and _THEN.isdisjoint(words)


@remember_short
def narrows_something(name: str) -> bool:
    """Whether the name of a property says that it narrows down what a call affects; without it, all is affected."""
    return not _NARROWS.isdisjoint(split_words(name))


def acts_by_argument(root: Node, value: JsonValue) -> bool:
    """Whether an argument names an action that changes something: `{"action": "update"}`. Under a name of actions, at
    any depth, that is every word that does not say that it reads; elsewhere a changing one that the schema lists."""
    for key, texts in _list_actions(root).items() if isinstance(value, dict) else ():
        if isinstance(value.get(key), str) and value[key] in texts:
            return True
    found = [value]
    for current in found:  # grows meanwhile
        if isinstance(current, dict):
            for key, item in current.items():
                if isinstance(item, str):
                    word = _read_acting_word(key) if item else ""
                    if word and (item.upper() in _WRITING if word == "method" else not reads_only(item)):
                        return True
                elif isinstance(item, dict | list):
                    found.append(item)
        elif isinstance(current, list):
            found += current
    return False


# The last words of arguments that say what is done, and HTTP's methods that do more than read (RFC 9110 section 9.2.1).
_ACTING: Final = frozenset({"action", "operation", "op", "command", "verb", "method"})
_WRITING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@remember_short
def _read_acting_word(key: str) -> str:
    """The last word of an argument's name where such arguments say what is done, else ''."""
    last = "".join(split_words(key)[-1:])
    return last if last in _ACTING else ""


def _list_actions(root: Node) -> dict[str, frozenset[str]]:
    """The root's properties that list such actions, with those actions; computed once."""
    memo: dict[int, dict[str, frozenset[str]]] = root.schemas.memos.setdefault("actions", {})
    if id(root) not in memo:
        listed = {
            key: frozenset(text for text in node.choices or () if isinstance(text, str) and changes_something(text))
            for key, node in root.properties.items()
        }
        memo[id(root)] = {key: texts for key, texts in listed.items() if texts}
    return memo[id(root)]


@remember_short
def is_case_meaning(name: str) -> bool:
    """Whether a name is a quantity or a unit's symbol, so that another case may be another unit."""
    name = name.strip()
    is_symbol = name in _ALONE or _QUANTITY.fullmatch(name) is not None or _PREFIXED.fullmatch(name) is not None
    return is_symbol and name not in _WORDS


def is_same_case(one: str, other: str) -> bool:
    """Whether no unit's symbol has another case in either of two names that fold alike: `power_mW` and `power_MW`
    differ. The capital of a camelCase word is no other case: `timeoutMs` is `timeout_ms`."""
    return _keeps_symbols(one, other) and _keeps_symbols(other, one)


def _keeps_symbols(name: str, other: str) -> bool:
    letters = "".join(_PIECES.findall(other))
    begins = {0, *accumulate(len(piece) for piece in _PIECES.findall(other))}
    at = 0
    for piece in _PIECES.findall(name):
        for start, word in [(0, piece), *((found.start(), found[0]) for found in _WORD.finditer(piece))]:
            there = letters[at + start : at + start + len(word)]
            if word == there or not (is_case_meaning(word) or is_case_meaning(there)):
                continue
            is_joined = start > 0 if word[:1].isupper() else at + start not in begins
            if not is_joined or word[1:] != there[1:] or word[1:] != word[1:].lower():
                return False
        at += len(piece)
    return True
