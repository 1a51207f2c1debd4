"""The copies of a kept call: a curl command, a line for `replay`, a test case.

All three need the arguments exactly as they came, so they are offered only where `admin.values: full` keeps them whole
and nothing in them is masked. Otherwise `no_copy` says why, and what to switch on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from proxy.core.display.secrets import MASK
from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.routing.table import Route
from proxy.telemetry.recent.ring import LONGEST_ARGUMENTS

_READER: Final = "Only holders of `admin.token` see arguments, if `admin.values` keeps them."
_OFF: Final = "Arguments are not kept. To see and copy them, set `admin.values: full`."
_PREVIEW: Final = "These arguments are a preview, masked and cut. To copy the call, set `admin.values: full`."
_GONE: Final = (
    f"Its arguments are not kept: they were longer than {LONGEST_ARGUMENTS // 1024} kB, or newer ones took their room."
)
_MASKED: Final = "It cannot be copied: a secret in it is masked."
_NO_OBJECT: Final = "It cannot be copied: its arguments are no JSON object."
_CHANGED: Final = "It cannot be copied as a test: its schema is no longer served."
_UNSETTLED: Final = "It cannot be copied as a test: whether its arguments were right is not known."
# The outcomes of calls whose arguments the tool took.
_TAKEN: Final = frozenset({"delivered", "repaired", "corrected", "passthrough"})


def describe_copies(
    call: Mapping[str, Any],
    values: tuple[bytes, ...] | None,
    shown: str,
    *,
    is_operator: bool,
    routes: Iterable[Route],
) -> dict[str, JsonValue]:
    """Returns the data for the page's copies, or why there are none.

    `call` is the kept call's entry, `values` its arguments as JSON texts, as they came and as they were repaired,
    `shown` the setting `admin.values`. `sent` is the text of the arguments, `expected` the JSON text of the right
    arguments on one line: those that the tool took, or null where the arguments broke the tool's rules. A call that was
    refused for another reason (a cap, a hook, a budget), that failed or was given up has no `expected`. `target` is the
    path of a request whose body is the arguments, and `replay` is true where the call's schema is still served.
    """
    if not is_operator:
        return {"no_copy": _READER}
    if shown != "full":
        return {"no_copy": _OFF if shown == "off" else _PREVIEW}
    if values is None:
        return {"no_copy": _GONE}
    came = parse(values[0])
    if isinstance(came, JsonProblem) or not isinstance(came, dict):
        return {"no_copy": _NO_OBJECT}
    if _is_masked(came):
        return {"no_copy": _MASKED}
    method, name, tool = call.get("http.request.method"), call["http.route"], str(call.get("gen_ai.tool.name", ""))
    route = next((one for one in routes if one.name == name and (method is None or method in one.methods)), None)
    if route is None:
        return {"no_copy": _CHANGED}
    found: dict[str, JsonValue] = {"sent": values[0].decode()}
    if target := _find_target(route, tool):
        found["target"] = target
    policy = route.tools.get(tool)
    if route.learn is None and (policy is None or policy.schema_id != call.get("schema_id")):
        return {**found, "no_copy": _CHANGED}
    return {**found, "replay": True, **_find_expected(call, values)}


def _find_expected(call: Mapping[str, Any], values: tuple[bytes, ...]) -> dict[str, JsonValue]:
    """The right arguments as `expected`, on one line, or why none are known. A line break of valid JSON stands between
    tokens."""
    if call.get("would_refuse") or (call["outcome"] == "refused" and call.get("errors")):
        return {"expected": "null"}
    if call["outcome"] not in _TAKEN:
        return {"no_copy": _UNSETTLED}
    return {"expected": (values[1] or values[0]).decode().replace("\r", " ").replace("\n", " ")}


def _find_target(route: Route, tool: str) -> str:
    """The path of a request whose whole body is the arguments; '' where a request of the route is not of this form."""
    shape = route.shape
    if route.adapter != "plain" or shape.operation is not None or shape.arguments_pointer is not None:
        return ""
    path = route.path.replace(f"{{{shape.tool_param}}}", quote(tool, safe="")) if shape.tool_param else route.path
    return "" if shape.tool_pointer is not None or "{" in path else path


def _is_masked(value: JsonValue) -> bool:
    """Whether a text of the value stands for a masked one."""
    if isinstance(value, dict):
        return any(map(_is_masked, value.values()))
    return any(map(_is_masked, value)) if isinstance(value, list) else value == MASK
