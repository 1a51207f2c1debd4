"""Arguments on their way to a model and back: secrets are masked and restored, and places that did not fail stay. Pure.

    hide_secrets(value)          the arguments for the prompt, with every secret masked
    restore_secrets(answer, ...) the answer with the original values wherever it repeats shown ones
    find_changes(before, after)  the places that differ
    find_out_of_scope(...)       those of them that the failure does not name
    keep_in_scope(...)           the answer without those

A value that is repeated keeps its own text: `1.10` stays `1.10`, also where the model writes 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.core.display.preview import is_secret_path
from proxy.core.display.secrets import MASK, mask_credentials
from proxy.core.json.jsontext import are_equal, walk
from proxy.core.model.values import ABSENT, FeedbackLimits, JsonValue, Pointer


def hide_secrets(value: JsonValue, limits: FeedbackLimits, path: Pointer = ()) -> JsonValue:
    """A copy with secrets masked: values under secret names, and texts that look like credentials. Nothing is cut."""
    if value is not None and path and is_secret_path(path[-1:], limits):
        return MASK
    if isinstance(value, dict):
        return {mask_credentials(key): hide_secrets(item, limits, (key,)) for key, item in value.items()}
    if isinstance(value, list):
        return [hide_secrets(item, limits) for item in value]
    return mask_credentials(value) if isinstance(value, str) else value


def restore_secrets(answer: JsonValue, was_shown: JsonValue, original: JsonValue) -> JsonValue:
    """The answer with each part that repeats what was shown replaced by the original."""
    if are_equal(answer, was_shown):
        return original
    if isinstance(answer, dict) and isinstance(was_shown, dict) and isinstance(original, dict):
        kept = {mask_credentials(key): key for key in original}
        return {
            kept.get(key, key): restore_secrets(item, was_shown[key], original[kept[key]]) if key in kept else item
            for key, item in answer.items()
        }
    if isinstance(answer, list) and isinstance(was_shown, list) and isinstance(original, list):
        return _restore_items(answer, was_shown, original)
    return answer


def _restore_items(answer: list[JsonValue], was_shown: list[JsonValue], original: list[JsonValue]) -> JsonValue:
    """Restores the items of a list. The model may have moved items, and a secret must not land in the wrong one: a
    changed item gets its parts back only where no other item changed."""
    same_length = len(answer) == len(was_shown)
    differing = [index for index, item in enumerate(answer) if not same_length or not are_equal(item, was_shown[index])]
    if same_length and len(differing) == 1:
        (index,) = differing
        return [
            restore_secrets(item, was_shown[index], original[index]) if place == index else original[place]
            for place, item in enumerate(answer)
        ]
    return [
        _find_moved(item, was_shown, original) if index in differing else original[index]
        for index, item in enumerate(answer)
    ]


def _find_moved(item: JsonValue, was_shown: list[JsonValue], original: list[JsonValue]) -> JsonValue:
    """The original of a moved item, if exactly one was shown like it; otherwise the item itself."""
    found = [kept for kept, seen in zip(original, was_shown, strict=True) if are_equal(item, seen)]
    return found[0] if len(found) == 1 else item


def lay_over(arguments: JsonValue, changes: JsonValue) -> JsonValue:
    """The arguments with changes merged in, nested objects too."""
    if not isinstance(arguments, dict) or not isinstance(changes, dict):
        return changes
    return {**arguments, **{key: lay_over(arguments.get(key), item) for key, item in changes.items()}}


def find_changes(before: JsonValue, after: JsonValue, path: Pointer = ()) -> list[Pointer]:
    """The deepest places where two values differ."""
    return list(_list_changed(before, after, path))


def _list_changed(before: JsonValue, after: JsonValue, path: Pointer) -> Iterator[Pointer]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from _list_changed(before.get(key, ABSENT), after.get(key, ABSENT), (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from _list_changed(*pair, (*path, index))
    elif before is ABSENT or after is ABSENT:
        if before is not after:
            yield path
    elif not are_equal(before, after):
        yield path


def find_out_of_scope(paths: list[Pointer], failing: list[tuple[str, ...]]) -> list[Pointer]:
    """The changed places that are neither at nor below one of `failing`; none where `failing` is empty."""
    return [path for path in paths if not _is_in_scope(path, failing)]


def keep_in_scope(before: JsonValue, after: JsonValue, failing: list[tuple[str, ...]], path: Pointer = ()) -> JsonValue:
    """The arguments after a change, with everything put back that `find_out_of_scope` names."""
    if isinstance(before, dict) and isinstance(after, dict):
        members = {
            key: keep_in_scope(before.get(key, ABSENT), after.get(key, ABSENT), failing, (*path, key))
            for key in {**after, **before}
        }
        return {key: item for key, item in members.items() if item is not ABSENT}
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [keep_in_scope(*pair, failing, (*path, index)) for index, pair in pairs]
    return after if _is_in_scope(path, failing) else before


def _is_in_scope(path: Pointer, failing: list[tuple[str, ...]]) -> bool:
    return not failing or any(tuple(map(str, path))[: len(place)] == place for place in failing)


def holds_mask(value: JsonValue, path: Pointer) -> bool:
    """Whether a changed place holds a masked secret: the model moved a value that it did not see."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step, ABSENT)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return False
    return any(isinstance(item, str) and MASK in item for item in walk(value))
