"""`guidance [--tool T]`: the text that an agent's prompt takes in before it calls the tools of a config."""

from __future__ import annotations

import argparse
from typing import Final

from proxy.cli.helptext import HelpText

EPILOG: Final = """\
examples:
  toolcall-proxy guidance --config config.yaml
  toolcall-proxy guidance --config config.yaml --tool weather > prompt.txt

The text begins with the ReAct header and the type rules; then each tool with its arguments and with right and wrong
calls, made from its schema. Nothing is contacted. A running proxy gives the same at /-/guidance (docs/guidance.md).

exit codes: 0 printed, 2 the config or the tool is wrong
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "guidance",
        help="prompt text that makes models call your tools right",
        description="Prints what a model should read before it calls the tools of a config.",
        epilog=EPILOG,
        formatter_class=HelpText,
    )
    verb.add_argument("-c", "--config", required=True, metavar="CONFIG", help="the config file")
    verb.add_argument("-t", "--tool", metavar="TOOL", action="append", help="only this tool; may be repeated")
    verb.add_argument("--max-chars", type=_length, metavar="N", help="the longest text (default: the config's)")


def _length(text: str) -> int:
    """A length in characters. Raises ArgumentTypeError where it is none."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of characters, such as 12000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Prints the guidance for `args.tool` (default: every tool) of `args.config` and gives the exit code."""
    from proxy.cli.catalogue import known_tools
    from proxy.core.prompt import guidance

    found = known_tools("guidance", args.config, args.tool)
    if found is None:
        return 2
    config, policies = found
    print(guidance(policies, args.max_chars or config.guidance.max_chars), end="")
    return 0
