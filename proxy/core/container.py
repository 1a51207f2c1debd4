"""A container takes no parameters: it only groups functions, which are called by their own names (contract section 6).

No body, `{}` or `null` expands a container; anything else is HPD's `container_invocation_error`. What a misuse leads
to is the operator's choice (`container: {auto_expand: off | expand | dispatch}`):

    failure = check_container(call, policy)            # None: no container, or called as it should be
    match instead(call, failure, seen_before):         # seen_before: the episode has failed attempts already
        None                refuse with `failure`; it raises the attempt
        Expand(call)        the call without its parameters: run it in place of this one
        Dispatch(call)      the call of the function it names: run it if its own policy forwards it, else refuse

A call made of `Expand` or `Dispatch` goes through `decide` like any other. `expansion(container)` is the answer where
the proxy itself expands (`expand: proxy`). `dotted` explains `Math.Add` sent as a tool name, `check_expanded` holds
back functions whose container has to be expanded first (`require_expansion: true`).

Telemetry: `CallRecord.container` is the container's name and `CallRecord.container_event` one of `EVENTS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from proxy.core import codes
from proxy.core.contract import conversation_hash
from proxy.core.jsontext import dumps
from proxy.core.model import (
    Container,
    ContainerMisuse,
    Conversation,
    Document,
    Failure,
    JsonValue,
    ToolCall,
)
from proxy.core.names import fold, nearest, quoted
from proxy.core.policy import ToolPolicy
from proxy.core.preview import preview

# What can happen around containers, for metrics: a closed set.
EVENTS: Final = ("expanded", "refused", "auto_expanded", "dispatched", "dotted", "not_expanded")

# Where models put the name of the function they want (HPD shows `function`).
FUNCTION_KEYS: Final = ("function", "function_name", "name", "tool")
# Where they put its arguments when not beside the name.
ARGUMENT_KEYS: Final = ("arguments", "args", "parameters", "params", "input")
# `Math.Add`, `Math/Add`, `Math::Add`, `Math__Add`: how models join a container and its function.
SEPARATORS: Final = ("::", "__", ".", "/", ":", "#")

# HPD: "Show first 5 functions + '...'".
_SHOWN_FUNCTIONS: Final = 5


@dataclass(frozen=True, slots=True)
class Expand:
    """Expand the container in place of the call that was made."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Call the function that the container's parameters name."""

    call: ToolCall


# --- the check ------------------------------------------------------------------------------------------------------
def check_container(call: ToolCall, policy: ToolPolicy) -> Failure | None:
    """Why a container call is refused; None if the tool is no container or the call expands it."""
    container = policy.container
    if container is None:
        return None
    sent = call.arguments.value if isinstance(call.arguments, Document) else None
    if isinstance(call.arguments, Document) and (sent is None or sent == {}):
        return None
    return misuse(container, sent)


def misuse(container: Container, sent: JsonValue) -> Failure:
    """HPD's `container_invocation_error` for a container called with `sent`."""
    function, arguments = _meant(container, sent)
    found = ContainerMisuse(container, sent, function, arguments)
    message = (
        f"'{container.name}' is a container function that groups related functions. "
        "It cannot be called with parameters."
    )
    return Failure(codes.CONTAINER_INVOCATION, message, hint=_hint(found), sent=sent, container=found)


def guidance(container: Container) -> str:
    """HPD's `retry_guidance`, word for word; the list of names ends in `...` after five."""
    text = (
        f"This requires TWO separate tool calls: (1) First call '{container.name}' with NO arguments to expand it. "
        "(2) After expansion succeeds, call the individual function you need."
    )
    if not container.functions:
        return text
    names = [function.name for function in container.functions[:_SHOWN_FUNCTIONS]]
    if len(container.functions) > _SHOWN_FUNCTIONS:
        names.append("...")
    return f"{text} Available functions: {', '.join(names)}"


def _meant(container: Container, sent: JsonValue) -> tuple[str, JsonValue]:
    """Which function parameters name ('' for none) and what they hold for it."""
    if not isinstance(sent, dict):
        return "", {}
    known = [function.name for function in container.functions]
    for key in FUNCTION_KEYS:
        named = sent.get(key)
        if isinstance(named, str) and (function := _function(container.name, named, known)):
            return function, _arguments({other: item for other, item in sent.items() if other != key})
    lone = next(iter(sent)) if len(sent) == 1 else ""
    if lone in known:
        return lone, sent[lone] if isinstance(sent[lone], dict) else sent
    return "", sent


def _arguments(rest: dict[str, JsonValue]) -> JsonValue:
    """The arguments beside a function's name: the rest, or what a lone wrapper key holds."""
    if len(rest) == 1:
        key, inner = next(iter(rest.items()))
        if key in ARGUMENT_KEYS and isinstance(inner, dict):
            return inner
    return rest


def _function(container: str, named: str, known: list[str]) -> str:
    """The known function that a text names, exactly or nearly; '' for none."""
    for separator in SEPARATORS:
        if fold(named.partition(separator)[0]) == fold(container) and separator in named:
            named = named.partition(separator)[2]
    return named if named in known else nearest(named, known) or ""


def _hint(found: ContainerMisuse) -> str:
    if not found.function:
        return ""
    return (
        f"You probably want '{found.function}': after expanding '{found.container.name}', "
        f"call '{found.function}' with {preview(found.arguments)}."
    )


# --- what to do instead ---------------------------------------------------------------------------------------------
def instead(call: ToolCall, failure: Failure, seen_before: bool) -> Expand | Dispatch | None:
    """What happens in place of refusing a misused container; None: refuse.

    `expand` helps once: only the first invalid attempt of an episode expands the container (`seen_before` False).
    `dispatch` wants one function named exactly, by exactly one key; a near name is only suggested.
    """
    found = failure.container
    if found is None or failure.code is not codes.CONTAINER_INVOCATION:
        return None
    match found.container.auto_expand:
        case "off":
            return None
        case "expand":
            return None if seen_before else Expand(_with(call, call.tool, {}))
        case "dispatch":
            return Dispatch(_with(call, found.function, found.arguments)) if _named_exactly(found) else None


def _named_exactly(found: ContainerMisuse) -> bool:
    if not isinstance(found.attempted, dict):
        return False
    known = {function.name for function in found.container.functions}
    named = [item for key in FUNCTION_KEYS if isinstance(item := found.attempted.get(key), str) and item in known]
    return len(named) == 1 and named[0] == found.function


def _with(call: ToolCall, tool: str, arguments: JsonValue) -> ToolCall:
    return replace(call, tool=tool, arguments=Document(dumps(arguments), arguments), raw=b"")


def expansion(container: Container, ignored_parameters: bool = False) -> JsonValue:
    """The answer to an expanded container where the proxy gives it: the functions with descriptions and schemas."""
    names = ", ".join(function.name for function in container.functions)
    message = f"{container.name} expanded. Functions: {names}"
    if ignored_parameters:
        message += ". Your parameters were ignored: now call the function you need by its own name."
    return {
        "success": True,
        "container": container.name,
        "source": container.source,
        "message": message,
        "functions": [
            {"name": function.name, "description": function.description, "parameters": function.schema or {}}
            for function in container.functions
        ],
    }


# --- names and order ------------------------------------------------------------------------------------------------
def dotted(tool: str, containers: Mapping[str, Container]) -> Failure | None:
    """Why `Math.Add` is no tool, where `Math` is a container; None for other unknown names."""
    for separator in SEPARATORS:
        head, _, tail = tool.partition(separator)
        container = containers.get(head)
        if container is not None and tail:
            return _dotted(container, tool, tail)
    return None


def _dotted(container: Container, tool: str, tail: str) -> Failure:
    known = [function.name for function in container.functions]
    function = _function(container.name, tail, known)
    hint = f"Call '{function}' by its own name." if function else ""
    message = (
        f"{quoted(tool)} is not a tool: '{container.name}' is a container function that groups related functions, "
        "and functions are called by their own name, without the container in front."
    )
    return Failure(
        codes.CONTAINER_INVOCATION, message, hint=hint, container=ContainerMisuse(container, {}, function, {})
    )


def expansion_key(conversation: Conversation, container: str) -> str:
    """The store's key of "this conversation has expanded this container" (`StateStore.mark`)."""
    return f"{conversation_hash(conversation)}/expanded/{container}"


def check_expanded(policy: ToolPolicy, expanded: bool) -> Failure | None:
    """Why a function may not be called yet; None if its container was expanded or need not be."""
    container = policy.member_of
    if container is None or not container.require_expansion or expanded:
        return None
    message = f"'{policy.tool}' belongs to the container '{container.name}', which has not been expanded yet."
    hint = f"First call '{container.name}' with NO arguments, then call '{policy.tool}' again."
    return Failure(
        codes.CONTAINER_NOT_EXPANDED, message, hint=hint, container=ContainerMisuse(container, {}, policy.tool, {})
    )
