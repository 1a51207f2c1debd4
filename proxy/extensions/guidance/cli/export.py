"""`export --format F` prints the tools of a config as OpenAI, Anthropic, Gemini or MCP expect them, as a JSON list."""

from __future__ import annotations

import argparse
import sys
from typing import Final

EPILOG: Final = """\
examples:
  toolcall-proxy export --config config.yaml --format openai > tools.json
  toolcall-proxy export --config config.yaml --format gemini --tool weather
  toolcall-proxy export --config config.yaml --format openai --final
  toolcall-proxy export --config config.yaml --format openai --with-http

The list goes to standard output. Standard error names each rule of a schema that the vendor's format cannot express.
The proxy still validates with the whole schema (docs/guidance.md). With --final, the list has the schemas of final
answers (routes with `upstream: none`) instead of tools. They are for `response_format` of OpenAI, `output_format` of
Anthropic, or `response_schema` of Gemini, and strict if possible.

exit codes: 0 success, 1 some tools cannot be exported, 2 an error in the config or the tool
"""

FORMATS: Final = ("openai", "anthropic", "gemini", "mcp")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "export",
        help="print your tools as OpenAI, Anthropic, Gemini or MCP definitions",
        description="Print the tools of a config in a vendor's format.",
        epilog=EPILOG,
    )
    verb.add_argument("-c", "--config", required=True, metavar="CONFIG", help="the config file")
    verb.add_argument("-f", "--format", required=True, choices=FORMATS, help="the vendor's format")
    verb.add_argument("--final", action="store_true", help="print schemas of final answers instead of tools")
    verb.add_argument(
        "--with-http", action="store_true", help="also print the method and URL of each tool at this proxy"
    )
    verb.add_argument("-t", "--tool", metavar="TOOL", action="append", help="only this tool; may be repeated")


def run(args: argparse.Namespace) -> int:
    """Exports `args.tool` (default: every tool) of `args.config` and gives the exit code."""
    from proxy.core.json.jsontext import dumps
    from proxy.extensions.guidance.cli.guidance import find_http, load_tools
    from proxy.extensions.guidance.core.export import export, export_outputs

    found = load_tools("export", args.config, args.tool)
    if found is None:
        return 2
    exported = (export_outputs if args.final else export)(found[1], args.format)
    tools = exported.tools
    if args.with_http:
        places = find_http(found[0], list(exported.names))
        tools = tuple({"definition": tool, "http": place} for tool, place in zip(tools, places, strict=True))
    # one tool per line, with exact numbers
    print("[\n" + ",\n".join(dumps(tool).decode() for tool in tools) + "\n]")
    for loss in exported.losses:
        print(loss, file=sys.stderr)
    return 1 if exported.left_out else 0
