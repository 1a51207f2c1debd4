"""Reads the section `correction` (the model endpoint) and the policy key `correct` (which calls may be corrected).

Prompts are read and their placeholders checked here. So a prompt that cannot be filled in is a mistake of the config
and does not fail while serving, and a reload notices an edited prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from proxy.config.keys.kinds import (
    DURATION,
    HEADER_NAME,
    PATH,
    POINTER,
    SIZE,
    SOME_TEXT,
    SWITCH,
    ConfigKey,
    Kind,
    decimal,
    list_of,
    mapping,
    member,
    name_kind,
    number,
)
from proxy.config.model import Config, RouteEntry, UpstreamConfig
from proxy.core.display.graphemes import find_placeholders
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.correction.core.settings import (
    NEEDED,
    PLACEHOLDERS,
    POLICY_KEY,
    CorrectionBudget,
    CorrectionPolicy,
    CorrectionSettings,
    DebugStore,
    Scope,
    TrajectoryLimits,
    find_policy,
)
from proxy.extensions.correction.core.words import Layer
from proxy.plugin import (
    Context,
    Files,
    is_unencrypted,
    join_words,
    read_named_text,
    read_switch,
    reveal,
    reveal_all,
    suggest_word,
)

Written = Mapping[str, JsonValue]

_SECTION: Final = "correction"


# --- the policy key ---------------------------------------------------------------------------------------------------
_ONE_OR_TWO: Final = number(minimum=1, maximum=2, x_expects="1 or 2")
_POLICY: Final = mapping(
    CorrectionPolicy,
    ConfigKey("validation_feedback", SWITCH, "Layer 3: asks about arguments that the schema or the tool refused."),
    ConfigKey(
        "semantic_retry",
        SWITCH,
        "Layer 4: if layer 3 has no answer, asks with the user's wish and the results of earlier calls.",
    ),
    ConfigKey("max_attempts", _ONE_OR_TWO, "The most questions per layer and call."),
    ConfigKey(
        "trajectory",
        SWITCH,
        "Remembers the user's wish and delivered results for layer 4, in this process and without secrets.",
    ),
    ConfigKey("independent_steps", SWITCH, "Asks layer 4 also if no earlier result is known."),
    ConfigKey(
        "scope",
        member(Scope),
        "The places that a correction may change: those that the failure names, or all if it names none (`failing`); "
        "always all (`any`). Default: `failing` for layer 3, `any` for layer 4.",
    ),
)


def _read_policy(written: Written) -> CorrectionPolicy | None:
    made: CorrectionPolicy = _POLICY.read(written)
    return None if made == CorrectionPolicy() else made


_CORRECT: Final = name_kind(
    "correct",
    "Correct",
    replace(_POLICY, read=_read_policy),
    "Asks a model for a right call in place of a failed one (docs/correction.md). Needs the section `correction`.",
)


def check_correct(context: Context, entries: tuple[RouteEntry, ...]) -> None:
    """Reports corrections that are enabled without an endpoint, and notes switches without effect."""
    if _SECTION not in context.structure.value:
        for path, written in _list_places(context):
            if any(read_switch(written.get(layer.value, False)) for layer in Layer):
                hint = f"say whom to ask: `{_SECTION}: {{upstream: NAME, model: NAME}}`"
                context.mistake(path, f"there is no section `{_SECTION}`", hint, key=True)
    for entry in entries:
        for name, tool in entry.tools.items():
            if note := _find_void(find_policy(tool.policy)):
                context.notes.append(f"route {entry.name!r}: tool {name!r}: {note}")


def _list_places(context: Context) -> Iterator[tuple[Pointer, Written]]:
    """Every place where `correct` is written."""
    routes = context.structure.value.get("routes")
    steps = routes if isinstance(routes, dict) else range(len(routes)) if isinstance(routes, list) else ()
    holders: list[Pointer] = [("defaults",), *(("tools", name) for name in context.mapping("tools"))]
    for step in steps:
        listed = context.mapping("routes", step, "mcp", "tools")
        holders += [("routes", step), *(("routes", step, "mcp", "tools", name) for name in listed)]
    for holder in holders:
        if written := context.mapping(*holder, POLICY_KEY):
            yield (*holder, POLICY_KEY), written


def _find_void(policy: CorrectionPolicy) -> str:
    if policy.trajectory and not policy.semantic_retry:
        return "correct.trajectory has no effect without semantic_retry"
    if policy.semantic_retry and not policy.independent_steps and not policy.trajectory:
        return "correct.semantic_retry is never asked: independent_steps is off and no trajectory is kept"
    return ""


# --- the section ------------------------------------------------------------------------------------------------------
_LEAST_ONE: Final = number(minimum=1)
_BUDGET: Final = mapping(
    CorrectionBudget,
    ConfigKey("per_call", number(minimum=1, maximum=4, x_expects="1 to 4"), "About one call."),
    ConfigKey(
        "per_conversation",
        _LEAST_ONE,
        "In one conversation. A conversation that is known only by its client's address has no such budget.",
    ),
    ConfigKey("per_hour", _LEAST_ONE, "In one hour."),
    ConfigKey(
        "tokens_per_hour",
        _LEAST_ONE,
        "Tokens asked and answered in one hour, by the endpoint's `usage`. Default: any number.",
    ),
)
_SOURCE: Final = mapping(
    None,
    ConfigKey("header", HEADER_NAME, "The name of a header."),
    ConfigKey("meta", SOME_TEXT, "A key of `_meta`."),
    ConfigKey("body", POINTER, "A place in the body."),
    description="A place in the request.",
    minProperties=1,
    maxProperties=1,
    x_expects="one of header, meta and body",
)


def _read_source(written: Written) -> tuple[str, str]:
    kind, name = next(iter(written.items()), ("header", ""))  # without one, its mistake is reported already
    return kind, reveal(name).lower() if kind == "header" else reveal(name)


_TRAJECTORY: Final = mapping(
    TrajectoryLimits,
    ConfigKey("steps", number(minimum=1, maximum=50), "Its last delivered calls."),
    ConfigKey(
        "max_chars", number(minimum=1, maximum=100_000), "Characters of one result, and of one call's arguments."
    ),
    ConfigKey("conversations", _LEAST_ONE, "How many conversations."),
    ConfigKey("ttl", DURATION, "How long after the last call."),
)
_PROMPTS: Final = mapping(
    None,
    ConfigKey(
        "validation_feedback",
        SOME_TEXT,
        "For layer 3; must hold `{{arguments}}`, `{{error}}` and `{{schema}}`. Default: the bundled one.",
    ),
    ConfigKey(
        "semantic_retry",
        SOME_TEXT,
        "For layer 4; must hold `{{arguments}}`, `{{error}}`, `{{query}}` and `{{trajectory}}`. Default: the bundled "
        "one.",
    ),
)
_DEBUG: Final = mapping(
    DebugStore,
    ConfigKey("file", SOME_TEXT, "A file of JSON lines, readable only by its owner.", default=None),
    ConfigKey("max_size", SIZE, "The size of the file, and of the older half beside it."),
    required=["file"],
)
_CORRECTION: Final = mapping(
    CorrectionSettings,
    ConfigKey(
        "upstream",
        SOME_TEXT,
        "The endpoint's upstream; its `headers` carry the API key, its `tls` and `timeouts.connect` count.",
    ),
    ConfigKey("path", PATH, "The path of chat completions, after the upstream's url."),
    ConfigKey("model", SOME_TEXT, "The model's name, as the endpoint knows it."),
    ConfigKey(
        "temperature",
        decimal(minimum=0, maximum=2),
        "The sampling temperature; low is repeatable. Default: 0.1.",
        default=None,
    ),
    ConfigKey("max_tokens", _LEAST_ONE, "The longest answer in tokens; one cut off is not used."),
    ConfigKey(
        "body",
        Kind({"type": "object"}, reveal_all),
        "Further request members, such as `response_format`; null removes one of ours.",
        default={},
    ),
    ConfigKey("timeout", DURATION, "For one question."),
    ConfigKey("deadline", DURATION, "For all questions about one call."),
    ConfigKey("concurrency", _LEAST_ONE, "Questions at a time; further ones wait within `deadline`."),
    ConfigKey("max_corrections", _ONE_OR_TWO, "Corrections of one call that may be tried."),
    ConfigKey("max_answer", SIZE, "The longest answer read."),
    ConfigKey("budget", _BUDGET, "Limits of questions, counted in the shared store if there is one."),
    ConfigKey(
        "structured_output",
        SWITCH,
        "Asks for answers in the form of the tool's schema (`response_format`), and without it if the endpoint does "
        "not know it.",
    ),
    ConfigKey(
        "query",
        list_of(
            replace(_SOURCE, read=_read_source),
            minItems=1,
            x_expects="a list of {header: NAME}, {meta: KEY} or {body: /pointer}",
        ),
        "Places of the user's wish in a request; the first one present counts. Read if `correct.trajectory` is on.",
        default=[{"header": "x-user-query"}],
    ),
    ConfigKey("trajectory", _TRAJECTORY, "Limits of the memory if `correct.trajectory` is on."),
    ConfigKey("prompts", _PROMPTS, "Files with your own prompts.", is_read=False),
    ConfigKey("debug", _DEBUG, "Keeps whole prompts and answers, argument values included. Default: none."),
    required=["upstream", "model"],
)
_DESCRIPTION: Final = "The model endpoint for corrections (docs/correction.md). Used only for tools with `correct`."
KEYS: Final = {
    "": mapping(None, ConfigKey(_SECTION, _CORRECTION, _DESCRIPTION)),
    **dict.fromkeys(("defaults", "tool", "route"), mapping(None, ConfigKey(POLICY_KEY, _CORRECT))),
}


def read_correction(
    context: Context, files: Files, upstreams: Mapping[str, UpstreamConfig]
) -> CorrectionSettings | None:
    """The settings of the endpoint; None where there is none, or it has mistakes."""
    written = context.mapping(_SECTION)
    if "upstream" not in written or "model" not in written:
        return None
    name, known = reveal(written["upstream"]), context.names("upstreams")
    prompts = _read_prompts(context, files, written.get("prompts", {}))
    if name not in known:
        hint = suggest_word(name, known) or (f"known: {join_words(known)}" if known else "add it under `upstreams`")
        context.mistake((_SECTION, "upstream"), f"unknown upstream {name!r}", hint)
    if name not in upstreams:
        return None
    made: CorrectionSettings = _CORRECTION.read(written)
    if is_unencrypted(upstreams[name]):
        context.notes.append(f"correction: arguments go to upstream {name!r} without encryption")
    headers = tuple((key, reveal(value)) for key, value in upstreams[name].headers.set)
    context.used_upstreams.add(name)
    debug = made.debug and replace(made.debug, file=str((context.folder / made.debug.file).absolute()))
    return replace(made, headers=headers, prompts=prompts, debug=debug)


# --- prompts ----------------------------------------------------------------------------------------------------------
def _read_prompts(context: Context, files: Files, written: Written) -> dict[Layer, str]:
    """Reads the operator's own prompts; reports those that cannot be read or filled in."""
    found: dict[Layer, str] = {}
    for layer in Layer:
        if layer.value not in written:
            continue
        at = (_SECTION, "prompts", layer.value)
        text = read_named_text(context, files, at, written[layer.value])
        if text is not None:
            _check_prompt(context, at, text, layer)
            found[layer] = text
    return found


def _check_prompt(context: Context, at: Pointer, text: str, layer: Layer) -> None:
    placeholders = find_placeholders(text)
    for name in sorted(placeholders - PLACEHOLDERS.keys()):
        hint = suggest_word(name, tuple(PLACEHOLDERS)) or f"known: {join_words(tuple(PLACEHOLDERS))}"
        context.mistake(at, f"the prompt holds {{{{{name[:60]}}}}}, which nothing fills in", hint)
    for name in sorted(NEEDED[layer] - placeholders):
        context.mistake(at, f"the prompt has no {{{{{name}}}}}", f"add it: {PLACEHOLDERS[name]}")


def find_correction(config: Config) -> CorrectionSettings | None:
    """Returns the model endpoint of a config; None if it has none."""
    found: CorrectionSettings | None = config.sections.get(_SECTION)
    return found
