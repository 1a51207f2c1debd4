"""The texts for MCP clients, before they call (`guidance: {mcp: ...}`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from proxy.config.model import Config
from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide
from proxy.core.model.value_class import value_class
from proxy.extensions.guidance.core.prompt import write_call_lines, write_guidance
from proxy.extensions.guidance.guidance_section import find_guidance


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
