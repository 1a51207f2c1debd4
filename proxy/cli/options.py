"""Shared parts of the verbs' command lines: the layout of their help, and the option `--header`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import suppress
from typing import Any, Final

from proxy.plugin import Flag

# argparse's own width if the terminal's is unknown.
_USUAL: Final = 80
# The column of the longest verb's end: argparse forgets that verbs are indented when it makes room for them.
_LONGEST_VERB: Final = 14
# A limit of time in a config.
_TIME: Final = re.compile(r"off|[0-9]+(\.[0-9]+)?(ms|s|m|h)")


class HelpText(argparse.RawDescriptionHelpFormatter):
    """argparse's layout with a given width. argparse makes a formatter for each declared argument, also to serve, and
    would load shutil and three compressors to find out the width."""

    def __init__(self, prog: str) -> None:
        written = os.environ.get("COLUMNS", "")  # as other programs read it
        columns = int(written) if written.isdecimal() else 0
        if not columns and sys.__stdout__:
            with suppress(OSError, ValueError):  # no terminal, or a closed stream
                columns = os.get_terminal_size(sys.__stdout__.fileno()).columns
        super().__init__(prog, width=(columns or _USUAL) - 2)
        self._action_max_length = _LONGEST_VERB


class CommandParser(argparse.ArgumentParser):
    """argparse's parser with that layout. The parsers of its verbs are of the same class."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"formatter_class": HelpText, **keywords})


def add_header_option(parser: argparse.ArgumentParser, help_text: str, *names: str) -> None:
    """Adds `--header`, which may be repeated; `names` are further spellings."""
    parser.add_argument(
        *names, "--header", metavar="'NAME: VALUE'", type=read_header, action="append", default=[], help=help_text
    )


def add_timeout_option(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Adds `--timeout`: how long a tool may take."""
    parser.add_argument("--timeout", metavar="TIME|off", type=_read_timeout, help=help_text)


def add_null_option(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Adds `--null-optional`: the policy key `null_optional` of all tools."""
    parser.add_argument("--null-optional", choices=("reading", "stated", "drop", "refuse"), help=help_text)


def write_defaults(args: argparse.Namespace) -> str:
    """The section `defaults` (YAML) that `--null-optional` asks for; '' without it."""
    return f"defaults: {{null_optional: {args.null_optional}}}\n" if args.null_optional else ""


def _read_timeout(text: str) -> str:
    if _TIME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 30s, 10m or 2h, nor off")
    return text


def read_header(text: str) -> tuple[str, str]:
    """`Name: value` as a header. Raises ArgumentTypeError, which does not repeat the value, for anything else."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip().isascii() or not name.strip() or set(text) & set("\r\n\0"):
        raise argparse.ArgumentTypeError("a header is 'Name: value'")
    return name.strip().lower(), value.strip()


def add_flag(parser: argparse.ArgumentParser | argparse._ArgumentGroup, flag: Flag) -> None:
    """Adds a flag of a plugin."""
    words = ("help", "metavar", "dest", "default", "choices", "action", "nargs", "const", "type")
    given = {word: value for word in words if (value := getattr(flag, word)) is not None}
    parser.add_argument(flag.name, **given)
