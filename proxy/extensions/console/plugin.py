"""The plugin `console`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from proxy.plugin import AddedPage, AddsPages, AddsVerbs, Verb

if TYPE_CHECKING:
    from proxy.extensions.console.page_counts import ConsoleCounts
    from proxy.extensions.console.pages import SharedAnswers
    from proxy.extensions.workers.pages import PoolPage
    from proxy.plugin import Counts, EventPage, Page, PageRequest, Serving


class ConsolePlugin(AddsVerbs, AddsPages):
    """Shows operators whether the proxy works and what happened to calls."""

    name = "console"
    adds = "the operator's pages: whether the proxy works, what happened to calls, what to change in a schema"
    uses = ("workers",)
    verbs = ("calls",)
    pages: ClassVar = {
        "/-/validate": AddedPage("POST", is_harmless=True),
        **dict.fromkeys(("/ui/", "/-/overview", "/-/calls", "/-/calls/", "/-/tools/", "/-/upstreams"), AddedPage()),
    }

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.console import cli

        return cli

    async def answer_page(self, path: str, serving: Serving, question: PageRequest) -> Page | EventPage:
        from proxy.extensions.console import pages
        from proxy.extensions.console.dry_run import make_verdict_page

        makers: Mapping[str, Callable[[Serving, PageRequest], Awaitable[Page | EventPage]]] = {
            "/ui/": pages.make_file_page,
            "/-/overview": pages.make_overview,
            "/-/validate": make_verdict_page,
            "/-/calls": pages.make_calls_page,
            "/-/calls/": pages.make_call_page,
            "/-/tools/": pages.make_tool_page,
            "/-/upstreams": pages.make_upstreams_page,
        }
        return await makers[path](serving, question)

    def list_pool_pages(self) -> Mapping[str, PoolPage]:
        """The pages that are joined out of those of several workers."""
        from proxy.extensions.console import pool_pages

        return {
            "/-/overview": pool_pages.join_overviews,
            "/-/calls": pool_pages.join_calls,
            "/-/calls/": pool_pages.find_call,
            "/-/tools/": pool_pages.join_tools,
            "/-/upstreams": pool_pages.join_upstreams,
        }

    def make_counts(self, read: Callable[[], Counts], wall: Callable[[], float], *, values: bool) -> ConsoleCounts:
        from proxy.extensions.console.page_counts import ConsoleCounts

        return ConsoleCounts(read, wall, values)

    def make_shared(self, now: Callable[[], float]) -> SharedAnswers:
        from proxy.extensions.console.pages import SharedAnswers

        return SharedAnswers(now)
