"""Reads the section `correction` (the model endpoint) and the policy key `correct` (which calls may be corrected).

Prompts are read and their placeholders checked here. So a prompt that cannot be filled in is a mistake of the config
and does not fail while serving, and a reload notices an edited prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.config.context import Context, read_named_text
from proxy.config.files.secrets import reveal, reveal_all
from proxy.config.files.source import Files
from proxy.config.mistakes import join_words, suggest_word
from proxy.config.model import Config, RouteEntry, UpstreamConfig
from proxy.config.sections.network import is_unencrypted
from proxy.config.sections.units import read_seconds, read_size, read_switch
from proxy.core.display.graphemes import find_placeholders
from proxy.core.json.jsontext import make_decimal
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

Written = Mapping[str, JsonValue]

_SECTION: Final = "correction"


def _convert(value: Written, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for the keys that are present, each converted by its function."""
    return {key: read(value[key]) for key, read in fields.items() if key in value}


# --- the policy key ---------------------------------------------------------------------------------------------------
def read_correction_policy(value: Written) -> CorrectionPolicy | None:
    """Reads which corrections a tool's calls may get; None if they are the default."""
    fields = {
        "validation_feedback": read_switch,
        "semantic_retry": read_switch,
        "max_attempts": int,
        "trajectory": read_switch,
        "independent_steps": read_switch,
        "scope": Scope,
    }
    made = CorrectionPolicy(**_convert(value, fields))
    return None if made == CorrectionPolicy() else made


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
    made = _convert(
        written,
        {
            "path": reveal,
            "body": reveal_all,
            "temperature": _read_number,
            "max_tokens": int,
            "timeout": read_seconds,
            "deadline": read_seconds,
            "concurrency": int,
            "max_corrections": int,
            "max_answer": read_size,
            "budget": lambda value: CorrectionBudget(**value),
            "trajectory": _read_trajectory,
            "structured_output": read_switch,
            "query": lambda value: tuple(map(_read_source, value)),
            "debug": lambda value: _read_debug(context, value),
        },
    )
    if is_unencrypted(upstreams[name]):
        context.notes.append(f"correction: arguments go to upstream {name!r} without encryption")
    headers = tuple((key, reveal(value)) for key, value in upstreams[name].headers.set)
    context.used_upstreams.add(name)
    return CorrectionSettings(name, reveal(written["model"]), headers=headers, prompts=prompts, **made)


def _read_number(value: JsonValue) -> float:
    return float(make_decimal(value))


def _read_trajectory(value: Written) -> TrajectoryLimits:
    return TrajectoryLimits(
        **_convert(value, {"steps": int, "max_chars": int, "conversations": int, "ttl": read_seconds})
    )


def _read_debug(context: Context, value: Written) -> DebugStore:
    path = (context.folder / reveal(value["file"])).absolute()
    return DebugStore(str(path), **_convert(value, {"max_size": read_size}))


def _read_source(value: Written) -> tuple[str, str]:
    (kind, name), *_ = value.items()
    text = reveal(name)
    return kind, text.lower() if kind == "header" else text


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
