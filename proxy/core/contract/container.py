"""A container takes no parameters: it only groups functions, which are called by their own names (docs/contract.md).

No body, `{}` or `null` expands a container; anything else is HPD's `container_invocation_error`. The operator chooses
the result of a misuse (`container: {auto_expand: off | expand | dispatch}`):

    failure = check_container(call, policy)            # None: no container, or called as it should be
    match expand_or_dispatch(call, failure, seen_before):    # seen_before: the episode has failed attempts already
        None                refuse with `failure`; it raises the attempt
        Expand(call)        the call without its parameters: run it in place of this one
        Dispatch(call)      the call of the function it names: run it if its own policy forwards it, else refuse

A call made of `Expand` or `Dispatch` goes through `decide` like any other. `make_expansion` is the answer where the
proxy itself expands (`expand: proxy`). `explain_dotted_name` explains `Math.Add` sent as a tool name,
`check_expanded` holds back functions whose container has to be expanded first (`require_expansion: true`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from proxy.core.contract.attempts import hash_conversation
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.graphemes import cut
from proxy.core.display.preview import clean_text, write_preview
from proxy.core.display.suggestions import find_nearest, fold_name, quote_name
from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model import codes
from proxy.core.model.values import (
    ABSENT,
    Absent,
    Container,
    ContainerFunction,
    ContainerMisuse,
    Conversation,
    Decision,
    Document,
    Failure,
    FeedbackLimits,
    JsonProblem,
    JsonValue,
    Pointer,
    Reject,
    ToolCall,
    Violation,
    value_class,
)

# Events around containers, for metrics: a closed set.
EVENTS: Final = ("expanded", "refused", "auto_expanded", "dispatched", "dotted", "not_expanded")

# Keys of models for the name of the function they want (HPD shows `function`).
FUNCTION_KEYS: Final = ("function", "function_name", "name", "tool")
# Their keys for its arguments when not beside the name.
ARGUMENT_KEYS: Final = ("arguments", "args", "parameters", "params", "input")
# `Math.Add`, `Math/Add`, `Math::Add`, `Math__Add`: how models join a container and its function.
# `Math_Add` and `Math-Add` are how vendors that allow no dot in a name write it.
SEPARATORS: Final = ("::", "__", ".", "/", ":", "#", "_", "-")

# Says, with an expansion, that it came in place of a call with parameters.
LEFT_OUT: Final = Violation(
    codes.UNKNOWN_FIELD,
    (),
    "The parameters were left out: a container takes none. Now call the function you need.",
    severity=codes.Severity.WARNING,
)

# A limit for the store's count of expansions that no conversation reaches: what matters is whether there was one.
MOST_EXPANSIONS: Final = 2**31 - 1

# The tool that finds others, and the least functions of a container that is shown with it. Fewer fit on one page, of so
# many characters of functions with their schemas.
SEARCH: Final = "search_tools"
SEARCHED: Final = 20
PAGE: Final = 20_000
# Names that a refusal holds at most; a catalogue may have hundreds.
_NAMED: Final = 40
# A longer hint is cut in a compact answer, and a call that is cut is another call.
_LONGEST_HINT: Final = 120
# Changes that advice names, and characters of a place or of what is expected there.
_CHANGES: Final = 3
_LONGEST_PLACE: Final = 80
# HPD: "Show first 5 functions + '...'".
_SHOWN_FUNCTIONS: Final = 5


@value_class
class Expand:
    """Expand the container in place of the call that was made."""

    call: ToolCall


@value_class
class Dispatch:
    """Calls the function that the container's parameters name; `below` is the place of its arguments among them."""

    call: ToolCall
    below: Pointer = ()


# --- the check ------------------------------------------------------------------------------------------------------
def check_container(call: ToolCall, policy: ToolPolicy) -> Failure | None:
    """Returns why a container call is refused; None if the tool is not a container or the call expands it."""
    container = policy.container
    if container is None:
        return None
    sent = call.arguments.value if isinstance(call.arguments, Document) else None
    if isinstance(call.arguments, Document) and (sent is None or sent == {} or _page_of(container, sent) > 1):
        return None
    return make_misuse_failure(container, sent)


def make_misuse_failure(container: Container, sent: JsonValue) -> Failure:
    """HPD's `container_invocation_error` for a container called with `sent`. The hint names the function, and repeats
    no argument: `advise_call` adds what is known of them."""
    function, arguments = _find_invocation(container, sent)
    found = ContainerMisuse(container, sent, function, arguments)
    if container.auto_expand == "dispatch":
        message = f"'{container.name}' groups functions, and `function` has to name exactly one of them."
    else:
        message = (
            f"'{container.name}' is a container function that groups related functions. "
            "It cannot be called with parameters."
        )
    hint = _write_call(found, "") if function else ""
    return Failure(codes.CONTAINER_INVOCATION, message, hint=hint, sent=sent, container=found)


def make_function_call(call: ToolCall, failure: Failure) -> ToolCall | None:
    """The call of the function that a misused container was meant for; None if no function is known."""
    found = failure.container
    if found is None or not found.function or failure.code is not codes.CONTAINER_INVOCATION:
        return None
    return _with(call, found.function, found.arguments)


def advise_call(failure: Failure, decision: Decision, limits: FeedbackLimits) -> Failure:
    """The misuse with what the function itself says of the arguments: the call in full if it is accepted and short, or
    what has to be changed first."""
    if (found := failure.container) is None:
        return failure
    if isinstance(decision, Reject):
        first = _list_changes(decision.failure.violations)
        return replace(failure, hint=f"{failure.hint} Change first: {first}." if first else failure.hint)
    value = decision.checked.value
    shown = write_preview(value, replace(limits, max_preview=_LONGEST_HINT))
    hint = _write_call(found, shown)
    # Masked, shortened or cut text reads back as another value.
    is_short = len(hint) <= _LONGEST_HINT and clean_text(hint, len(hint), limits) == hint
    read = parse(shown.encode()) if is_short else ABSENT
    is_whole = not isinstance(read, (JsonProblem, Absent)) and dumps(read) == dumps(value)
    return replace(failure, hint=hint) if is_whole else failure


def _write_call(found: ContainerMisuse, shown: str) -> str:
    """Returns the call that was probably meant, with its arguments as they are `shown`, or with their place."""
    name, function, sent = found.container.name, found.function, found.attempted
    members = sent if isinstance(sent, dict) else {}
    inside = next((key for key, item in members.items() if item is found.arguments), "")
    kept = found.arguments if isinstance(found.arguments, dict) else {}
    beside = next((key for key, item in members.items() if item is not found.arguments and key not in kept), "")
    same = f"what you sent in `{inside}`" if inside in (function, *ARGUMENT_KEYS) else "the same arguments"
    has_any = found.arguments not in ({}, None)
    if found.container.auto_expand == "dispatch":
        if shown:
            return f'You probably want {{"function": "{function}", "arguments": {shown}}}.'
        rest = f", and {same} as `arguments`" if has_any else ""
        return f"You probably want '{function}': send exactly this name as `function`{rest}."
    wanted = f"You probably want '{function}': after expanding '{name}', call '{function}'"
    if shown or not has_any:
        return f"{wanted} with {shown}." if shown else f"{wanted}."
    without = f", without `{beside}`" if same == "the same arguments" and beside else ""
    return f"{wanted} with {same}{without}."


def _list_changes(found: Iterable[Violation]) -> str:
    """Returns the changes that a function needs in its arguments, in a few words without a value."""
    errors = [each for each in found if each.severity is codes.Severity.ERROR]
    changes: list[str] = []
    for each in errors[:_CHANGES]:
        place = cut(format_pointer(each.path), _LONGEST_PLACE) or "the arguments"
        wanted = each.expected if len(each.expected) <= _LONGEST_PLACE else each.expected.split(" (")[0]
        if each.code is codes.REQUIRED_MISSING:
            changes.append(f"add {place} ({wanted})" if wanted else f"add {place}")
        elif each.code is codes.UNKNOWN_FIELD:
            changes.append(f"rename or leave out {place}")
        else:
            changes.append(f"send {wanted} at {place}" if 0 < len(wanted) <= _LONGEST_PLACE else f"correct {place}")
    more = f" (+{len(errors) - _CHANGES} more)" if len(errors) > _CHANGES else ""
    return "; ".join(changes) + more


def ask_for_two_calls(failure: Failure) -> Failure:
    """A misuse in HPD's words, whatever `auto_expand` says: for a function that the route itself does not serve."""
    if (found := failure.container) is None:
        return failure
    return make_misuse_failure(replace(found.container, auto_expand="off"), found.attempted)


def write_guidance(container: Container) -> str:
    """HPD's `retry_guidance`, word for word; the list of names ends in `...` after five."""
    if container.auto_expand == "dispatch":
        names = [function.name for function in container.functions]
        every = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        return (
            f'Send {{"function": "<name>", "arguments": {{...}}}}, where <name> is exactly one of: {every}. '
            f"Called with no arguments, '{container.name}' shows what each of them takes."
        )
    names = [function.name for function in container.functions[:_SHOWN_FUNCTIONS]]
    names += ["..."] if len(container.functions) > _SHOWN_FUNCTIONS else []
    return (
        f"This requires TWO separate tool calls: (1) First call '{container.name}' with NO arguments to expand it. "
        "(2) After expansion succeeds, call the individual function you need."
        + (f" Available functions: {', '.join(names)}" if names else "")
    )


def _find_invocation(container: Container, sent: JsonValue) -> tuple[str, JsonValue]:
    """The function that the parameters of a container name ('' for none), and the arguments that they hold for it."""
    if not isinstance(sent, dict):
        return "", {}
    known = [function.name for function in container.functions]
    near = (key for key in sent if key not in FUNCTION_KEYS and find_nearest(key, FUNCTION_KEYS[:1], slip=True))
    for key in (*FUNCTION_KEYS, *near):
        named = sent.get(key)
        if isinstance(named, str) and (function := _function(container.name, named, known)):
            rest = {other: item for other, item in sent.items() if other != key}
            # A lone wrapper key beside the name holds the arguments, otherwise they are beside it themselves.
            wrapped = next((item for other, item in rest.items() if other in ARGUMENT_KEYS), None)
            return function, wrapped if len(rest) == 1 and isinstance(wrapped, dict) else rest
    lone = next(iter(sent)) if len(sent) == 1 else ""
    if lone in known:
        return lone, sent[lone] if isinstance(sent[lone], dict) else sent
    return "", sent


def _function(container: str, named: str, known: list[str]) -> str:
    """The known function that a text names, exactly or nearly; '' for none."""
    for separator in SEPARATORS:
        if fold_name(named.partition(separator)[0]) == fold_name(container) and separator in named:
            named = named.partition(separator)[2]
    return named if named in known else find_nearest(named, known, slip=True) or ""


# --- what to do instead ---------------------------------------------------------------------------------------------
def expand_or_dispatch(call: ToolCall, failure: Failure, seen_before: bool) -> Expand | Dispatch | None:
    """Returns the call in place of refusing a misused container; None: refuse.

    `expand` helps once: only the first invalid attempt of an episode expands the container (`seen_before` False).
    `dispatch` wants one function named exactly, by exactly one key; a near name is only suggested.
    """
    found = failure.container
    if found is None or failure.code is not codes.CONTAINER_INVOCATION:
        return None
    if found.container.auto_expand == "expand" and not seen_before:
        return Expand(_with(call, call.tool, {}))
    sent = found.attempted
    if found.container.auto_expand != "dispatch" or not isinstance(sent, dict):
        return None
    known = {function.name for function in found.container.functions}
    named = [item for key in FUNCTION_KEYS if isinstance(item := sent.get(key), str) and item in known]
    if named != [found.function]:
        return None
    below = [key for key in ARGUMENT_KEYS if sent.get(key) is found.arguments][:1]  # in a wrapper, or beside the name
    return Dispatch(_with(call, found.function, found.arguments), tuple(below))


def make_inner_failure(failure: Failure, dispatch: Dispatch, sent: JsonValue) -> Failure:
    """The failure of a function called through its container, with the places that they have in that call."""
    moved = tuple(replace(violation, path=(*dispatch.below, *violation.path)) for violation in failure.violations)
    whose = f"These are the arguments of the function '{dispatch.call.tool}'."
    return replace(failure, violations=moved, hint=f"{whose} {failure.hint}".strip(), sent=sent)


def _with(call: ToolCall, tool: str, arguments: JsonValue) -> ToolCall:
    return replace(call, tool=tool, arguments=Document(dumps(arguments), arguments), raw=b"")


def make_expansion(container: Container, ignored_parameters: bool = False, sent: JsonValue = None) -> JsonValue:
    """The answer to an expanded container where the proxy gives it: the functions with descriptions and schemas. Those
    of a server's whole catalogue come page by page; `sent` names the page."""
    pages = cut_pages(container.functions) if container.source == "mcp" else [container.functions]
    number = min(max(_page_of(container, sent), 1), len(pages))
    functions = pages[number - 1]
    page = f", page {number} of {len(pages)}" if len(pages) > 1 else ""
    message = f"{container.name} expanded{page}. Functions: {', '.join(function.name for function in functions)}"
    if number < len(pages):
        message += f'. The next page: {container.name} with {{"page": {number + 1}}}'
    if page and len(container.functions) >= SEARCHED:
        message += f". Quicker: `{SEARCH}` finds tools by what they do"
    if ignored_parameters:
        message += ". Your parameters were ignored: now call the function you need by its own name."
    return {
        "success": True,
        "container": container.name,
        "source": container.source,
        "message": message,
        "functions": [show_function(function) for function in functions],
    }


def show_function(function: ContainerFunction) -> dict[str, JsonValue]:
    """A function with its description and its parameters."""
    return {"name": function.name, "description": function.description, "parameters": dict(function.schema or {})}


def cut_pages(functions: Sequence[ContainerFunction]) -> list[list[ContainerFunction]]:
    """The functions page by page, at least one on each."""
    pages: list[list[ContainerFunction]] = [[]]
    size = 0
    for function in functions:
        own = len(dumps(show_function(function)))
        if pages[-1] and size + own > PAGE:
            pages.append([])
            size = 0
        pages[-1].append(function)
        size += own
    return pages


def _page_of(container: Container, sent: JsonValue) -> int:
    """The page that a call of a server's catalogue asks for; 0 where it asks for none."""
    page = sent.get("page") if isinstance(sent, dict) and sent.keys() == {"page"} else None
    return page if container.source == "mcp" and isinstance(page, int) and not isinstance(page, bool) else 0


# --- names and order ------------------------------------------------------------------------------------------------
def explain_dotted_name(tool: str, containers: Mapping[str, Container]) -> Failure | None:
    """Returns why `Math.Add` is not a tool, if `Math` is a container (in any case); None for other unknown names."""
    for head, container in containers.items():
        rest = tool[len(head) :] if fold_name(tool[: len(head)]) == fold_name(head) else ""
        tail = next((rest.removeprefix(sign) for sign in SEPARATORS if rest.startswith(sign) and rest != sign), "")
        if not tail:
            continue
        function = _function(container.name, tail, [function.name for function in container.functions])
        message = (
            f"{quote_name(tool)} is not a tool: '{container.name}' is a container function that groups related "
            "functions, and functions are called by their own name, without the container in front."
        )
        hint = f"Call '{function}' by its own name." if function else ""
        misuse = ContainerMisuse(container, {}, function, {})
        return Failure(codes.CONTAINER_INVOCATION, message, hint=hint, container=misuse)
    return None


def make_expansion_key(conversation: Conversation, container: str) -> str:
    """The store's key of how often this conversation has expanded this container."""
    return f"{hash_conversation(conversation)}/expanded/{container}"


def check_expanded(policy: ToolPolicy, expanded: bool) -> Failure | None:
    """Returns why a function may not be called yet; None if its container was expanded or need not be."""
    container = policy.member_of
    if container is None or not container.require_expansion or expanded:
        return None
    message = f"'{policy.tool}' belongs to the container '{container.name}', which has not been expanded yet."
    hint = f"First call '{container.name}' with NO arguments, then call '{policy.tool}' again."
    misuse = ContainerMisuse(container, {}, policy.tool, {})
    return Failure(codes.CONTAINER_NOT_EXPANDED, message, hint=hint, container=misuse)
