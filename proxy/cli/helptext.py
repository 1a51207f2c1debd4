"""How the help of every verb is laid out: as written, as wide as the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

# What argparse takes where nothing says how wide the terminal is.
_USUAL: Final = 80


class HelpText(argparse.RawDescriptionHelpFormatter):
    """argparse's own layout. Told its width, as argparse makes one for each argument that is declared, also to serve,
    and would load shutil and three compressors to find the width out."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """How wide the terminal is, in characters: COLUMNS goes first, as everywhere."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _USUAL if sys.__stdout__ else _USUAL
    except (OSError, ValueError):  # no terminal, or closed
        return _USUAL
