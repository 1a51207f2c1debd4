"""`toolcall-proxy completion SHELL` prints the script by which a shell completes verbs, options and files."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

EXIT_NO_LIBRARY: Final = 2
SHELLS: Final = ("bash", "zsh", "fish")
# Words in help texts that mean a file or a folder, whose names a shell completes itself.
_FILES: Final = ("FILE", "CONFIG")
_FOLDERS: Final = ("FOLDER",)

EPILOG: Final = """\
examples:
  bash  toolcall-proxy completion bash > ~/.local/share/bash-completion/completions/toolcall-proxy
  zsh   toolcall-proxy completion zsh > ~/.zfunc/_toolcall-proxy        (with `fpath+=~/.zfunc` before compinit)
  fish  toolcall-proxy completion fish > ~/.config/fish/completions/toolcall-proxy.fish

This verb needs the extra `completion`: run  pip install '.[completion]'  in a clone.

exit codes: 0 success, 2 the extra is not installed
"""


def register(subparsers: Any) -> None:
    """Describes the verb and its argument."""
    verb = subparsers.add_parser(
        "completion",
        help="print a completion script for bash, zsh or fish",
        description="Print a script that completes verbs, options, choices and file names in bash, zsh or fish.",
        epilog=EPILOG,
    )
    verb.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Prints the script and gives the exit code."""
    try:
        import shtab
    except ImportError:
        print("completion: a library is missing: pip install '.[completion]' in a clone", file=sys.stderr)
        return EXIT_NO_LIBRARY
    from proxy.__main__ import make_parser

    parsers = [make_parser()]
    for parser in parsers:
        for action in parser._actions:  # argparse has no public list of them
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
            words = str(action.metavar or "").split("|")
            if any(word in words for word in _FILES):
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # where the library looks for it
            elif any(word in words for word in _FOLDERS):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(parsers[0], args.shell))
    return 0
