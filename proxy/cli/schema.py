"""`toolcall-proxy schema` prints the JSON Schema of the config, for editors."""

from __future__ import annotations

import argparse
from typing import Final

EPILOG: Final = """\
examples:
  toolcall-proxy schema > config.schema.json

Write this as the first line of a config. Editors with the YAML language server then complete and check it:
  # yaml-language-server: $schema=config.schema.json

exit codes: 0 success
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb; it takes no arguments."""
    subparsers.add_parser(
        "schema",
        help="print the JSON Schema of the config, for editors",
        description="Print the JSON Schema that a config must match.",
        epilog=EPILOG,
    )


def run(_args: argparse.Namespace) -> int:
    """Prints the schema and gives the exit code."""
    from proxy.config.files.published import write_published_schema

    print(write_published_schema(), end="")
    return 0
