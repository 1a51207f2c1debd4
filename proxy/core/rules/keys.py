"""The rules that change an object's keys: a key in another spelling, plumbing keys, a missing default.

Each function takes the object and the schemas that judge it, and gives the object (the same one where nothing changed)
and the repairs made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Final

from proxy.core.json.jsontext import are_equal
from proxy.core.model.values import JsonValue, Pointer, Repair
from proxy.core.model.work import Work
from proxy.core.rules.facts import (
    is_match,
    list_declared,
    list_member_schemas,
    list_required,
    read_facts,
)
from proxy.core.rules.members import fold
from proxy.core.rules.names import changes_something, is_same_case, narrows_something, reads_only, split_words
from proxy.core.rules.proposals import NULL_WORDS
from proxy.core.schema.nodes import Node

Accepts = Callable[[Node, JsonValue], bool]
# The object after a rule (the same one where nothing changed), and the repairs made.
Changed = tuple[JsonValue, tuple[Repair, ...]]

# Rules that give a key another name; each relates keys in its own way (`_meanings`).
KEY_RULES: Final = frozenset({"key_case", "key_quotes", "key_prefix", "key_markup", "key_word", "dotted_keys"})


def rename_one_key(
    nodes: tuple[Node, ...],
    value: dict[str, JsonValue],
    path: Pointer,
    rules: frozenset[str],
    drop: frozenset[str],
    tool: str,
    accepts: Accepts,
    work: Work,
) -> Changed:
    """Renames keys that differ only in spelling from one absent declared key, and removes those in `drop` and those
    that name the tool itself. Raises TooMuchWorkError.

    Only a key that some schema refuses is renamed, or one whose target is required. But where one key is renamed, every
    other key that the same rule relates to a declared key is renamed too; where that is impossible, none is. Otherwise
    the tool would read only half of a call.
    """

    known = list_declared(nodes)
    patterns = [pattern for node in nodes for pattern in node.pattern_properties]
    unknown = [key for key in value if key not in known and not any(is_match(each, key, work) for each in patterns)]
    if not unknown:
        return value, ()
    wanted = list_required(nodes)
    work.spend(4 * len(unknown))
    refused = [key for key in unknown if _is_refused(nodes, key, value[key], accepts)]
    if "dotted_keys" in rules and (nested := _nest_dotted(nodes, value, unknown, work)) is not None:
        return nested, tuple(Repair("dotted_keys", (*path, key)) for key in unknown if nested is not value)
    for rule, targets in _meanings(unknown, value, known, wanted, rules, nodes, tool):
        free = {key: target for key, target in targets.items() if target not in value}
        if not any(key in refused or target in wanted for key, target in free.items()):
            continue
        if len(free) < len(targets) or len(set(free.values())) < len(free):
            return value, ()
        return rename_keys(value, path, {key: (rule, target) for key, target in free.items()})
    dropped = [key for key in refused if is_plumbing(key, value[key], drop, tool)] if "drop_unknown" in rules else []
    return rename_keys(value, path, dict.fromkeys(dropped, ("drop_unknown", None)))


def rename_keys(value: dict[str, JsonValue], path: Pointer, names: Mapping[str, tuple[str, str | None]]) -> Changed:
    """The object with new names for keys (None: removed), in its order. `names`: key -> (rule, new name)."""
    if not names:
        return value, ()
    repairs = [Repair(rule, (*path, key)) for key, (rule, _) in names.items()]
    kept = ((names[key][1] if key in names else key, item) for key, item in value.items())
    return {key: item for key, item in kept if key is not None}, tuple(repairs)


# Keys under which clients send the name of the tool once more, beside its arguments.
NAMING_KEYS: Final = frozenset({"tool", "action"})
_NAMES_A_TOOL: Final = re.compile(r"[A-Za-z0-9]+(?:[ _.-][A-Za-z0-9]+)*")


def is_plumbing(key: str, item: JsonValue, drop: frozenset[str], tool: str) -> bool:
    """Whether a key is the client's own: in `drop`, or it names the tool. Another name or action says more."""
    if isinstance(item, dict) and item.keys() <= {"name", "description"}:
        item = item.get("name")
    if key in drop or key not in NAMING_KEYS or not isinstance(item, str) or not _NAMES_A_TOOL.fullmatch(item):
        return key in drop
    words, named = split_words(tool), split_words(item)
    return named == words or (key == "tool" and named == words[1:] and reads_only(tool))


# A path of keys: `location.city`, `location[city]`.
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[[A-Za-z_]\w*\])+", re.ASCII)


def _nest_dotted(
    nodes: tuple[Node, ...], value: dict[str, JsonValue], unknown: list[str], work: Work
) -> dict[str, JsonValue] | None:
    """The object with every undeclared key at the place that it spells; None where one spells none, or one that was
    sent."""
    made = {key: item for key, item in value.items() if key not in unknown}
    for key in unknown:
        if _DOTTED.fullmatch(key) is None:
            return None
        *above, last = re.findall(r"\w+", key)
        parts, inner = nodes, made
        for step in above:
            if step not in list_declared(parts) or (inner is made and step in value):
                return None
            below = [part for schema in list_member_schemas(parts, step, work) for part in schema.always]
            parts, inner = tuple(below), inner.setdefault(step, {})
            if not isinstance(inner, dict):
                return None
        if last not in list_declared(parts) or last in inner:
            return None
        inner[last] = value[key]
    return made


# --- which declared key an unknown one means --------------------------------------------------------------------------
# Quotes and white space around a key, and a call's markup around it.
_AROUND: Final = " \t\n\r\"'`\\“”‘’"
_MARKUP: Final = re.compile(r"<?(?:parameter|param|arg)(?:_key)?(?: name)?=[\"']?([^\"'<>=]+)[\"']?/?>?")
# A prefix that a wrapper leaves before all keys. `input_` is none: it may tell an input from an output.
_PREFIX: Final = re.compile(r"(?:(?:params?|parameters?|args?|arguments?|kwargs)[_./:-])+")
# Words that distinguish parameters; nothing is renamed or moved by them.
TELLING_WORDS: Final = frozenset([
    "min", "max", "minimum", "maximum", "start", "end", "begin", "from", "to", "old", "new", "source", "target", "src",
    "dst", "not", "no", "non", "exclude", "excluded", "except", "without", "ignore", "ignored", "hide", "hidden",
    "avoid", "skip", "deny", "block", "blocked", "omit", "remove", "delete", "before", "after", "first", "last", "prev",
    "previous", "next", "parent", "child", "in", "out", "dry", "undo", "example", "unless", "negative", "else",
    "otherwise", "replacement", "fallback", "backup", "default", "alternative", "alternate", "blacklist", "blocklist",
    "denylist", "denied", "forbidden", "banned", "disabled", "disallowed", "rejected", "failed", "error", "removed",
    "deleted", "never", "anti",
])  # fmt: skip


def _meanings(
    unknown: list[str],
    value: dict[str, JsonValue],
    known: Set[str],
    wanted: set[str],
    rules: frozenset[str],
    nodes: tuple[Node, ...],
    tool: str,
) -> Iterator[tuple[str, dict[str, str]]]:
    """For each key rule that is on: the unknown keys that it relates to declared keys, with those keys."""
    if "key_case" in rules:
        yield "key_case", explain_keys(unknown, known)
    if "key_quotes" in rules:
        yield "key_quotes", {key: name for key in unknown if (name := key.strip(_AROUND)) in known}
    if "key_prefix" in rules and len(unknown) == len(value) and (prefix := _PREFIX.match(unknown[0])):
        # The one wrapper's name that all keys begin with, if all the rest is declared.
        bare = {key: key[prefix.end() :] for key in unknown if key.startswith(prefix[0])}
        yield "key_prefix", bare if len(bare) == len(unknown) and known >= {*bare.values()} else {}
    if "key_markup" in rules:
        inside = {key: found[1].strip() for key in unknown if (found := _MARKUP.fullmatch(key.strip())) is not None}
        yield "key_markup", {key: name for key, name in inside.items() if name in known}
    missing = wanted - value.keys()
    if "key_word" in rules and len(unknown) == len(missing) == 1:
        sent, target = unknown[0], min(missing)
        last = split_words(sent)[-1:]
        kin = {name for name in known if split_words(name)[-1:] == last}
        parts = [part for node in nodes if target in node.properties for part in node.properties[target].always]
        texts = [text for part in parts if isinstance(text := part.get("description"), str)]
        yield "key_word", {sent: target} if kin == missing and _is_same_word(sent, target, texts, tool) else {}


def explain_keys(unknown: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """For each unknown key the one declared key that folds like it, unless the case carries the meaning."""
    names: dict[str, str] = {}
    for name in known:
        key = fold(name)
        names[key] = "" if key in names else name  # none where several fold alike
    return {key: target for key in unknown if (target := names.get(fold(key))) and is_same_case(key, target)}


# Words of tools and descriptions by which a path is not a file's.
_OF_FOLDERS: Final = frozenset(
    ["dir", "dirs", "directory", "directories", "folder", "folders", "list", "ls", "tree", "scan", "walk", "glob",
     "browse", "files", "search", "find", "recursive", "recursively", "url", "json", "xpath"]
)  # fmt: skip


def _is_same_word(sent: str, target: str, texts: list[str], tool: str) -> bool:
    """Whether two names end in the same word and the rest of the longer one stands elsewhere: it is what the tool's
    name says it works on (`id` on `get_user` is `user_id`), or the target's description begins with it ("The company
    name"), or it says nothing more (the path of a file)."""
    one, other = split_words(sent), split_words(target)
    if not one or not other or one[-1] != other[-1] or not TELLING_WORDS.isdisjoint({*one} ^ {*other}):
        return False
    more, less = (one, other) if len(one) > len(other) else (other, one)
    extra = more[: len(more) - len(less)]
    if not extra or more[len(extra) :] != less:
        return False
    if more is one and (extra, less) == (("file",), ("path",)):
        return _OF_FOLDERS.isdisjoint((*split_words(tool), *split_words(" ".join(texts).lower())))
    works_on = split_words(tool)[1:]
    if extra == works_on or (len(extra) == len(works_on) == 1 and f"{extra[0]}s" == works_on[0]):
        return True
    begins = re.compile(rf"(?:the |a |an |your )?{' '.join(extra)}(?:'s)? {' '.join(less)}\b(?! or\b|/)", re.IGNORECASE)
    return more is one and any(begins.match(text) for text in texts)


def _is_refused(nodes: Iterable[Node], key: str, value: JsonValue, accepts: Accepts) -> bool:
    """Whether some schema refuses an undeclared key (or its value)."""
    return any(
        rest is not None and key not in schema.properties and (rest.never or not accepts(rest, value))
        for schema in nodes
        for rest in (schema.additional, schema.unevaluated)
    )


# --- values that are not sent, and defaults ---------------------------------------------------------------------------
def drop_refused(
    schemas: list[Node], item: JsonValue, path: Pointer, rules: frozenset[str], accepts: Accepts, keeps_defaults: bool
) -> tuple[Repair, ...]:
    """The repair that treats an optional key's refused value as not sent; () where no rule does. A word such as "None"
    is never left out where a default would take its place, and with `keeps_defaults` nothing is."""
    name = "drop_null_optional" if item is None else "empty_optional" if item == "" else ""
    if not name and isinstance(item, str) and item in NULL_WORDS:
        name = "null_word_optional"
    facts = [read_facts(schema) for schema in schemas]
    for each in facts:
        rules = rules if each.allowed is None else rules & each.allowed
    parts = [(schema, part) for schema in schemas for part in schema.always]
    keeps = name == "null_word_optional" or (name and keeps_defaults)
    if keeps and any(part.get("default") is not None for _, part in parts):
        return ()
    # What narrows a call down is left out where it is null or `x-null` says so, but not for an empty text or a word.
    if name and all(
        each.null == "drop" and bool(rules)
        if each.null
        else name in rules and (name == "drop_null_optional" or not narrows_something(each.site.name))
        for each in facts
    ):
        return (Repair(name, path),)
    if item is None or item == "" or "default_optional" not in rules:
        return ()
    own = any(
        part.has("default") and are_equal(part.get("default"), item) and not accepts(schema, item)
        for schema, part in parts
    )
    return (Repair("default_optional", path),) if own else ()


# The rules of `fill_defaults`.
FILLING: Final = frozenset({"fill_required", "fill_default"})


def fill_defaults(
    nodes: tuple[Node, ...], value: JsonValue, path: Pointer, rules: frozenset[str], accepts: Accepts
) -> Changed:
    """Adds missing required keys with a `default`, else the one missing optional key whose `default` makes the object
    acceptable. Raises TooMuchWorkError."""
    if not isinstance(value, dict):
        return value, ()
    given = _list_missing_defaults(nodes, value) if "fill_required" in rules else {}
    if given and accepts(nodes[0], {**value, **given}):
        return {**value, **given}, tuple(Repair("fill_required", (*path, key)) for key in given)
    if "fill_default" not in rules:
        return value, ()
    taken = value.keys() | list_required(nodes)
    found: dict[str, JsonValue] = {}
    for schema in nodes:
        for key, member in schema.properties.items():
            if key not in taken and key not in found and member.has("default"):
                whole = {**value, key: member.get("default")}
                if accepts(nodes[0], whole):
                    found[key] = whole
    if len(found) != 1:
        return value, ()
    ((key, whole),) = found.items()
    return whole, (Repair("fill_default", (*path, key)),)


def _list_missing_defaults(nodes: tuple[Node, ...], value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The missing required keys with their defaults, none unless all have one. Nothing is assumed where the key may
    have been sent under another name, or in another place."""
    absent = list_required(nodes) - value.keys()
    inside = [item for item in value.values() if isinstance(item, dict)]
    if not value.keys() <= list_declared(nodes) or any(not absent.isdisjoint(item) for item in inside):
        return {}
    given: dict[str, JsonValue] = {}
    for key in sorted(absent):
        members = [schema.properties[key] for schema in nodes if key in schema.properties]
        defaults = [member.get("default") for member in members if member.has("default")]
        if not defaults or any(not are_equal(defaults[0], other) for other in defaults[1:]):
            return {}
        if isinstance(defaults[0], str) and changes_something(defaults[0]):  # no default changes or removes anything
            return {}
        given[key] = defaults[0]
    return given
