"""docs/library.md: its first example prints what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_shows() -> None:
    code, shown = (
        re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) for kind in ("python", "text")
    )
    assert (1, 1) == (len(code), len(shown))
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code[0]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    assert shown[0] == done.stdout
