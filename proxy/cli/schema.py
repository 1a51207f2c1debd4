"""`toolcall-proxy schema` prints the JSON Schema of the config, for editors."""

from __future__ import annotations

import argparse
from typing import Final

EPILOG: Final = """\
examples:
  toolcall-proxy schema > config.schema.json

An editor with the YAML language server then completes and checks a config with this first line:
  # yaml-language-server: $schema=config.schema.json

exit codes: 0 printed
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb; it takes no arguments."""
    subparsers.add_parser(
        "schema",
        help="print the JSON Schema of the config, for editors",
        description="Prints the JSON Schema of the config, which the proxy enforces.",
        epilog=EPILOG,
    )


def run(_args: argparse.Namespace) -> int:
    """Prints the schema and gives the exit code."""
    from proxy.config.files.published import write_published_schema

    print(write_published_schema(), end="")
    return 0
