"""The plugin `operations`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from proxy.plugin import AddsKeys, AddsVerbs, ExtendsVerbs, Flag, NoConfig, SpeaksProtocol, Verb

if TYPE_CHECKING:
    import argparse
    from contextlib import ExitStack
    from pathlib import Path

    from proxy.config.keys.kinds import Kind
    from proxy.core.model.values import Headers, JsonValue, Pointer
    from proxy.extensions.operations.importing.harvest import Harvest, Recorded
    from proxy.plugin import (
        Adapter,
        ChannelJudge,
        Check,
        CheckFlag,
        CheckReport,
        CommandParser,
        Context,
        FlagFinding,
        FoundSchema,
        Loaded,
        OperationRule,
        QueryPolicy,
        RequestForm,
        SourceProblem,
        ToolReader,
        WrittenRoute,
    )

_LIVE: Final = """
--live reads the sources of `toolcall-proxy import` again, and lists the tools that have changed since the import:
  toolcall-proxy check guarded/config.yaml --live
"""


class OperationsPlugin(AddsKeys, SpeaksProtocol, AddsVerbs, ExtendsVerbs):
    """Speaks HTTP operations, as OpenAPI describes them, and writes configs for tools that describe themselves."""

    name = "operations"
    adds = "HTTP operations (OpenAPI, arguments in path, query, headers, cookies and forms), `import`, `check --live`"
    verbs = ("import",)
    other_keys = ("request", "parameters")
    call_keys = ("parameters",)
    schemas = (("routes", "*", "parameters", "*", "schema"),)
    adapter = "http"
    schema_source = "openapi"

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.extensions.operations.operation_section import KEYS

        return KEYS

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.operations.cli import import_

        return import_

    def add_check_flags(self, parser: CommandParser) -> None:
        from proxy.plugin import add_header_option

        what = "list what has changed in the sources of an import"
        parser.add_argument("--live", action="store_true", help=what)
        add_header_option(parser, "with --live: send this header; may be repeated")
        parser.epilog = f"{parser.epilog}{_LIVE}"

    def list_check_flags(self) -> Mapping[str, CheckFlag]:
        from proxy.plugin import CheckFlag

        what = "The source of an imported tool has changed since the import."
        return {"live": CheckFlag("sources", "source-changed", what, _check_live)}

    def list_no_config(self) -> Sequence[NoConfig]:
        described = "without a config: serve the operations of this OpenAPI description"
        names = "with --openapi: serve operations at their own paths (http, the default), or as MCP tools (mcp)"
        return (
            NoConfig(
                Flag("--openapi", described, metavar="URL|FILE"),
                _make_config_file,
                (
                    "--openapi http://127.0.0.1:8000/openapi.json",
                    "--openapi http://127.0.0.1:8000/openapi.json --as mcp",
                ),
                shares=frozenset(["null_optional", "admin"]),
                has_one_path=lambda args: bool(args.serve_as == "mcp"),
                flags=(
                    Flag("--as", names, dest="serve_as", choices=("http", "mcp"), default="http"),
                    Flag(
                        "--upstream",
                        "with --openapi: the server's address, if the description does not name it",
                        dest="upstream",
                        metavar="URL",
                    ),
                    Flag(
                        "--relay",
                        "with --openapi: forward operations that cannot be validated, instead of answering 501",
                        dest="relay",
                        action="store_true",
                    ),
                ),
            ),
        )

    def load_import_kinds(self) -> Mapping[str, Verb]:
        """Kind of `import` -> its module."""
        from proxy.extensions.operations.cli import import_openapi

        return {"openapi": import_openapi}

    async def read_source(self, recorded: Recorded, headers: Headers, folder: Path) -> Harvest | None:
        """A recorded source as it is now; None for the kinds of others."""
        if recorded.kind != "openapi":
            return None
        from proxy.extensions.operations.importing.openapi import read_again

        return await read_again(recorded, headers, folder)

    def load_adapter(self) -> Adapter:
        from proxy.extensions.operations.adapters.http_operation import ADAPTER

        return ADAPTER

    def read_request(self, context: Context, at: Pointer, written: Mapping[str, JsonValue]) -> RequestForm | None:
        from proxy.extensions.operations.operation_section import read_request

        return read_request(context, at, written)

    def read_channels(
        self, catalogue: ToolReader, route: WrittenRoute, formats: JsonValue, policy: QueryPolicy
    ) -> ChannelJudge:
        from proxy.extensions.operations.operation_section import read_channels

        return read_channels(catalogue, route, formats, policy)

    def read_operation(self, document: JsonValue, name: str, provided: frozenset[str]) -> FoundSchema | SourceProblem:
        from proxy.extensions.operations.operation_section import read_operation

        return read_operation(document, name, provided)

    def bind(self, form: RequestForm, check: Check | None, *, by_name: bool, query: QueryPolicy) -> OperationRule:
        from proxy.extensions.operations.adapters.http_request import bind_operation
        from proxy.extensions.operations.core.http.operations import RequestTemplate

        assert isinstance(form, RequestTemplate)  # noqa: S101 - what `read_request` or an operation's schema gave
        return bind_operation(form, check, by_name=by_name, query=query)


def _make_config_file(args: argparse.Namespace, kept: ExitStack) -> Path | None:
    from proxy.extensions.operations.cli.import_openapi import make_config_file

    return make_config_file(args, kept)


def _check_live(report: CheckReport, loaded: Loaded, args: argparse.Namespace) -> list[FlagFinding]:
    from proxy.extensions.operations.cli.import_ import check_live

    return check_live(report, loaded, args)
