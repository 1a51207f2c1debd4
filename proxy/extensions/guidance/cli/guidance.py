"""`guidance [--tool T]` prints text for an agent's prompt about the tools of a config."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from proxy.config.model import Config, ToolConfig
    from proxy.core.contract.policy import ToolPolicy

# --- finds the tools of a config by name ------------------------------------------------------------------------------
NOTHING: Final = "the config names no tool with a schema  (what an MCP server lists, the running proxy knows)"


def load_tools(verb: str, path: str, names: Sequence[str] | None) -> tuple[Config, dict[str, ToolPolicy]] | None:
    """Reads a config and its tools. None, with the reason printed under the verb's name, where that fails."""
    from proxy.plugin import ConfigError, load

    try:
        config = load(path, os.environ).config
    except ConfigError as error:
        print(error, file=sys.stderr)
        return None
    found = find_tools(config, names)
    if isinstance(found, str):
        print(f"{verb}: {found}", file=sys.stderr)
        return None
    if not found:
        print(f"{verb}: {NOTHING}", file=sys.stderr)
    return config, {name: policy for name, (_, policy) in found.items()}


def find_tools(config: Config, names: Sequence[str] | None) -> dict[str, tuple[ToolConfig, ToolPolicy]] | str:
    """Tool -> (as written, as compiled) on the first route that serves it; a message if no route serves
    one of `names`.

    A tool that an MCP server lists is known only if its schema is in the config.
    """
    from proxy.plugin import suggest_remark
    from proxy.routing import build_routes

    found: dict[str, tuple[ToolConfig, ToolPolicy]] = {}
    # The routes of the config come first; those for an MCP server's metadata follow.
    for entry, route in zip(config.routes, build_routes(config).routes, strict=False):
        for name, policy in route.tools.items():
            found.setdefault(name, (entry.tools[name], policy))
        for name, tool in (entry.listed.tools if entry.listed is not None else {}).items():
            if route.learn is not None and tool.schema is not None:
                found.setdefault(name, (tool, route.learn.whole()[name]))
    for name in names or ():
        if name not in found:
            known = ", ".join(found) or "none"
            return f"no route serves a tool {name!r}{suggest_remark(name, found)}\ntools: {known}"
    return found if names is None else {name: found[name] for name in names}


def find_http(config: Config, names: Sequence[str]) -> list[dict[str, str]]:
    """The method and the URL at this proxy of each tool, with path parameters in braces. A route that serves one tool
    goes before a route that serves many."""
    found: dict[str, dict[str, str]] = {}
    for entry in sorted(config.routes, key=lambda entry: len(entry.tools)):
        method = "POST" if "POST" in entry.methods or not entry.methods else entry.methods[0]
        for name in names:
            if name in entry.tools or (entry.listed is not None and name in entry.listed.tools):
                path = entry.path.replace("{tool}", name)
                found.setdefault(name, {"method": method, "url": f"http://{config.listen.address}{path}"})
    return [found.get(name, {"method": "", "url": ""}) for name in names]


# --- `guidance [--tool T]` prints text for an agent's prompt about the tools of a config ------------------------------
# Seconds between two looks at the config's files.
_EVERY: Final = 1.0

EPILOG: Final = """\
examples:
  toolcall-proxy guidance --config config.yaml
  toolcall-proxy guidance --config config.yaml --tool weather > prompt.txt
  toolcall-proxy guidance --config config.yaml --watch prompt.txt    updates it after each change of the config

The text begins with rules for every tool: work step by step (ReAct), and write JSON types correctly. Each tool follows
with its arguments, and with right and wrong calls made from its schema. The command contacts no server. The operator's
port of a running proxy serves the same text at /-/guidance (docs/guidance.md).

exit codes: 0 success, 2 an error in the config or the tool
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "guidance",
        help="print prompt text that helps models call your tools",
        description="Print text for a model's prompt, about how to call the tools of a config.",
        epilog=EPILOG,
    )
    verb.add_argument("-c", "--config", required=True, metavar="CONFIG", help="the config file")
    verb.add_argument(
        "--with-http", action="store_true", help="also print the method and URL of each tool at this proxy"
    )
    verb.add_argument("-t", "--tool", metavar="TOOL", action="append", help="only this tool; may be repeated")
    verb.add_argument(
        "--watch", metavar="FILE", type=Path, help="write to this file, and update it after each change of the config"
    )
    verb.add_argument("--max-chars", type=_read_length, metavar="N", help="write at most N characters")


def _read_length(text: str) -> int:
    """Reads a length in characters. Raises ArgumentTypeError for anything else."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of characters, such as 12000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Prints the guidance for `args.tool` (default: every tool) of `args.config`, or keeps a file of it up to date
    until it is interrupted, and gives the exit code."""
    text = _write(args)
    if text is None:
        return 2
    if args.watch is None:
        print(text, end="")
        return 0
    try:
        _keep_file(args, text)
    except OSError as error:
        print(f"guidance: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
    return 2


def _write(args: argparse.Namespace) -> str | None:
    """The text; None, with the reason printed, where there is none."""
    from proxy.extensions.guidance.core.prompt import write_guidance
    from proxy.extensions.guidance.guidance_section import find_guidance
    from proxy.plugin import decide

    found = load_tools("guidance", args.config, args.tool)
    if found is None:
        return None
    config, policies = found
    settings = find_guidance(config)
    text = write_guidance(policies, args.max_chars or settings.max_chars, decide, (), settings.template)
    if args.with_http:
        places = zip(policies, find_http(config, list(policies)), strict=True)
        text += "\n## Over HTTP\n\n" + "".join(
            f"- {name}: {place['method']} {place['url']}\n" for name, place in places
        )
    return text


def _keep_file(args: argparse.Namespace, text: str) -> NoReturn:
    """Writes the text now and after each change of it. A config with mistakes leaves the last good text in place."""
    from proxy.config.watch import hash_files
    from proxy.file_writing import SHARED, replace_file
    from proxy.plugin import ConfigError, load

    while True:
        replace_file(args.watch, text.encode(), SHARED)
        print(f"{args.watch} is up to date", file=sys.stderr, flush=True)
        written = text
        while text == written:
            try:
                seen = load(args.config, os.environ).seen
            except ConfigError as error:
                seen = error.seen
            while hash_files(seen) == seen:
                time.sleep(_EVERY)
            text = _write(args) or written
