"""The plugin `guidance`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from proxy.plugin import AddedPage, AddsPages, AddsVerbs, ExtendsCalls, Verb

if TYPE_CHECKING:
    from proxy.config.keys.kinds import Kind
    from proxy.extensions.guidance.guidance_section import Guidance
    from proxy.plugin import AnswerPath, Config, Context, Files, Page, PageRequest, Serving, ToolTexts, Upstreams


class GuidancePlugin(AddsVerbs, AddsPages, ExtendsCalls):
    """Makes what agents read of tools before they call."""

    name = "guidance"
    adds = "what agents read of tools before they call: prompt text, and definitions as vendors want them"
    uses = ("second_judge",)
    verbs = ("guidance", "export")
    sections = ("guidance",)
    pages: ClassVar = {"/-/guidance": AddedPage()}

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.extensions.guidance.guidance_section import KEYS

        return KEYS

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.guidance.cli import export, guidance

        return export if verb == "export" else guidance

    def read_section(self, key: str, context: Context, files: Files, upstreams: Upstreams) -> Guidance:
        from proxy.extensions.guidance.guidance_section import read_guidance

        return read_guidance(context, files, upstreams)

    async def answer_page(self, path: str, serving: Serving, question: PageRequest) -> Page:
        from proxy.extensions.guidance.guidance_page import make_guidance_page

        return await make_guidance_page(serving, question)

    def make_answers(self, config: Config) -> Mapping[str, AnswerPath]:
        from proxy.extensions.guidance.guidance_page import make_answers

        return make_answers(config)

    def make_tool_texts(self, config: Config) -> ToolTexts | None:
        from proxy.extensions.guidance.guidance_section import make_tool_texts

        return make_tool_texts(config)
