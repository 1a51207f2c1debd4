"""Object keys that differ only in case, such as `Arguments` beside `arguments`. Pure.

JSON's names are exact, and this proxy compares them exactly. Go's `encoding/json` and .NET's web defaults ignore case,
and take the last of several matching keys. Such a reader could read another call than the one that was judged, so a
body with such keys on the way to a call is refused, like a body with duplicate keys.
"""

from __future__ import annotations

from proxy.core.model.values import JsonProblem, JsonValue, Pointer


def find_case_duplicate(value: JsonValue, path: Pointer) -> JsonProblem | None:
    """Why a reader that ignores case may find something else at `path`, or None where it finds the same value.

    Every object on the path is examined, also where the path ends before its last step. Go folds beyond ASCII, as
    `str.casefold` does: it reads `argument\u017f` as `arguments`.
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
