"""Members that pass for another one where case does not count: `Arguments` beside `arguments`. Pure.

JSON's names are exact, and so are ours; but Go's `encoding/json` and .NET's web defaults match them without case, and
of two that match the last one counts. To such a reader they are duplicates, so a body that has one where a call stands
is refused like one with duplicate keys: else the tool could read another call than the one that was judged.
"""

from __future__ import annotations

from proxy.core.model import JsonProblem, JsonValue, Pointer


def ambiguous(value: JsonValue, path: Pointer) -> JsonProblem | None:
    """Why a reader blind to case may find something else at `path`; None where it finds what everybody finds.

    Every object on the way is looked at, also where the way ends before its last step. Go folds beyond ASCII, as
    `str.casefold` does: `argument\u017f` is `arguments` to it.
    """
    for step in path:
        if not isinstance(value, dict) or not isinstance(step, str):
            return None
        folded = step.casefold()
        for key in value:
            if key != step and key.casefold() == folded:
                return JsonProblem(f"a member passes for '{step}' where case does not count: leave it out", 1, 1)
        if step not in value:
            return None
        value = value[step]
    return None
