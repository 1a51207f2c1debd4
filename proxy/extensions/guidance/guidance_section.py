"""The section `guidance` of the config: the text that agents read before they call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final, Literal

from proxy.config.keys.kinds import PATH, SOME_TEXT, SWITCH, ConfigKey, choice, mapping, number
from proxy.config.model import Config, UpstreamConfig
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.graphemes import find_placeholders
from proxy.core.model.value_class import value_class
from proxy.extensions.guidance.core.prompt import NEEDED, PLACEHOLDERS, write_call_lines, write_guidance
from proxy.plugin import Context, Files, decide, join_words, read_named_text, suggest_word

_TEMPLATE: Final = ("guidance", "template")


@value_class
class Guidance:
    """The settings of the text that agents read before they call, as `GUIDANCE` describes them; `template` is the text
    of the file."""

    dynamic_state: bool = True
    max_chars: int = 12_000
    serve: str = ""
    mcp: Literal["off", "instructions", "descriptions"] = "off"
    template: str = field(default="", repr=False)


GUIDANCE: Final = mapping(
    Guidance,
    ConfigKey(
        "dynamic_state",
        SWITCH,
        "Tells a conversation's calls, caps and attempts to whoever names it. The ReAct header stays either way.",
    ),
    ConfigKey("max_chars", number(minimum=1000, maximum=1_000_000), "The longest guidance, in characters."),
    ConfigKey(
        "serve",
        PATH,
        "The path of guidance on the port of calls, for the routes an agent may use and with its conversation's state. "
        "A route of that path goes first. Default: not served there.",
        default=None,
    ),
    ConfigKey(
        "mcp",
        choice("off", "instructions", "descriptions"),
        "Adds it for MCP clients. `instructions`: the whole text, after the server's in `initialize` "
        "(`server/discover`). `descriptions`: for each listed tool its arguments with right and wrong calls, at most "
        "`max_chars` characters in all. Messages are otherwise unchanged.",
    ),
    ConfigKey(
        "template",
        SOME_TEXT,
        "A file with your text around `{{header}}`, `{{type_rules}}`, `{{state}}` and `{{tools}}`; the first and last "
        "are required. Default: the parts in that order.",
        default=None,
    ),
)
_DESCRIPTION: Final = "The text that agents read before they call (docs/guidance.md)."
KEYS: Final = {"": mapping(None, ConfigKey("guidance", GUIDANCE, _DESCRIPTION))}


def read_guidance(context: Context, files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> Guidance:
    """Reads the settings of the text that agents read before they call; reports a template that cannot be used."""
    made: Guidance = GUIDANCE.read(context.mapping("guidance"))
    name = context.structure.entry(*_TEMPLATE)
    text = read_named_text(context, files, _TEMPLATE, name) if name is not None else None
    return replace(made, template=text if text is not None and _is_usable_template(context, text) else "")


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
