"""The section `guidance` of the config: the text that agents read before they call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal

from proxy.config.context import Context, read_named_text
from proxy.config.files.secrets import reveal
from proxy.config.files.source import Files
from proxy.config.mistakes import join_words, suggest_word
from proxy.config.model import Config, UpstreamConfig
from proxy.config.sections.units import read_switch
from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide
from proxy.core.display.graphemes import find_placeholders
from proxy.core.model.value_class import value_class
from proxy.extensions.guidance.core.prompt import NEEDED, PLACEHOLDERS, write_call_lines, write_guidance

_TEMPLATE: Final = ("guidance", "template")


@value_class
class Guidance:
    """The text that agents read before they call: at most `max_chars` characters, with or without the state of the
    conversation (Compozy, `enable_dynamic_prompt_state`). `serve`: the path at which agents fetch it, '' for none.
    `mcp`: where MCP clients read it. `template`: the operator's own text around its parts, '' for the usual one."""

    dynamic_state: bool = True
    max_chars: int = 12_000
    serve: str = ""
    mcp: Literal["off", "instructions", "descriptions"] = "off"
    template: str = field(default="", repr=False)


def read_guidance(context: Context, files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> Guidance:
    """Reads the settings of the text that agents read before they call; reports a template that cannot be used."""
    written = context.mapping("guidance")
    made: dict[str, Any] = {"max_chars": written["max_chars"]} if "max_chars" in written else {}
    if "dynamic_state" in written:
        made["dynamic_state"] = read_switch(written["dynamic_state"])
    if "serve" in written:
        made["serve"] = reveal(written["serve"])
    if "mcp" in written:
        made["mcp"] = "off" if written["mcp"] is False else reveal(written["mcp"])
    if "template" in written:
        text = read_named_text(context, files, _TEMPLATE, written["template"])
        if text is not None and _is_usable_template(context, text):
            made["template"] = text
    return Guidance(**made)


def _is_usable_template(context: Context, text: str) -> bool:
    """Returns whether a template can be filled in; reports each reason why not."""
    placeholders, known = find_placeholders(text), tuple(PLACEHOLDERS)
    unknown, missing = sorted(placeholders - PLACEHOLDERS.keys()), sorted(NEEDED - placeholders)
    for name in unknown:
        hint = suggest_word(name, known) or f"known: {join_words(known)}"
        context.mistake(_TEMPLATE, f"the template holds {{{{{name[:60]}}}}}, which nothing fills in", hint)
    for name in missing:
        context.mistake(_TEMPLATE, f"the template has no {{{{{name}}}}}", f"add it: {PLACEHOLDERS[name]}")
    return not unknown and not missing


def find_guidance(config: Config) -> Guidance:
    """The guidance of a config, or the defaults."""
    found: Guidance = config.sections.get("guidance", Guidance())
    return found


# --- the texts for MCP clients ----------------------------------------------------------------------------------------
@value_class
class PromptTexts:
    """Implements `ToolTexts`: the whole text, or each tool's own part of it."""

    place: Literal["instructions", "descriptions"]
    max_chars: int
    template: str

    def write_instructions(self, tools: Mapping[str, ToolPolicy]) -> str:
        """The whole text about these tools."""
        return write_guidance(tools, self.max_chars, decide, (), self.template).rstrip("\n")

    def write_description(self, policy: ToolPolicy) -> str:
        """A tool's arguments, with right and wrong calls."""
        return "\n".join(write_call_lines(policy, decide))


def make_tool_texts(config: Config) -> PromptTexts | None:
    """The texts of a config for MCP clients; None where it switches them off."""
    settings = find_guidance(config)
    return None if settings.mcp == "off" else PromptTexts(settings.mcp, settings.max_chars, settings.template)
