"""The plugin `importing`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy.plugin import AddsVerbs, CheckFlag, ExtendsVerbs, Verb

if TYPE_CHECKING:
    import argparse

    from proxy.cli.check_formats import CheckReport
    from proxy.config.load import Loaded


class ImportingPlugin(AddsVerbs, ExtendsVerbs):
    """Writes configs for tools that describe themselves."""

    name = "importing"
    adds = "configs written for tools that describe themselves: `import`, and `check --live`"
    verbs = ("import",)

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.importing.cli import import_

        return import_

    def list_check_flags(self) -> Mapping[str, CheckFlag]:
        return {"live": _check_live}


def _check_live(report: CheckReport, loaded: Loaded, args: argparse.Namespace) -> int:
    from proxy.extensions.importing.cli.check_live import check_live

    return check_live(report, loaded, args)
