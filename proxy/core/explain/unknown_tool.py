"""Why a call of a tool that the route does not know fails, with the name that was probably meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from proxy.core.contract.container import explain_dotted_name
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.suggestions import fold_name, make_unknown_tool_failure
from proxy.core.explain.explain import explain_invalid_json
from proxy.core.model import codes
from proxy.core.model.values import Failure, JsonProblem, ToolCall

# Of a name, how many characters may name a container.
_LONGEST: Final = 400


def explain_unknown_tool(call: ToolCall, tools: Mapping[str, ToolPolicy]) -> Failure:
    """The failure of a call of a tool outside `tools`: the body names none, one like `Math.Add`, or an unknown one."""
    if call.tool == "" and isinstance(call.arguments, JsonProblem):
        return Failure(
            codes.INVALID_ARGUMENTS, codes.INVALID_ARGUMENTS.meaning, (explain_invalid_json(call.arguments),)
        )
    start = fold_name(call.tool[:_LONGEST])
    heads = [name for name in tools if start.startswith(fold_name(name))]  # not all tools: there may be thousands
    found = {head: policy.container for head in heads if (policy := tools.get(head)) is not None}
    containers = {head: container for head, container in found.items() if container is not None}
    failure = explain_dotted_name(call.tool, containers) or make_unknown_tool_failure(call.tool, tools)
    return failure if call.tool else replace(failure, message="The call names no tool.")
