"""The plugin `demo`."""

from __future__ import annotations

from proxy.plugin import AddsVerbs, Verb


class DemoPlugin(AddsVerbs):
    """Shows the proxy in front of sample tools."""

    name = "demo"
    adds = "sample tools and the proxy in front of them, with calls to paste: `demo`"
    verbs = ("demo",)

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.demo.cli import demo

        return demo
