"""The two pictures of docs/console.md, made from the demo under a fixed load.

python -m tests.extensions.console.pictures    writes docs/pictures (`make pictures`)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from tests.extensions.console.browser import browser, page
from tests.extensions.console.test_pages import call, link
from tests.extensions.correction.running import Demo, demo

FOLDER: Final = Path(__file__).parents[3] / "docs" / "pictures"
SIZE: Final = {"width": 1000, "height": 780}
# Pictures are kept small, in bytes.
LARGEST: Final = 120_000


def load(started: Demo) -> None:
    """The same calls each time: right, repaired, refused and failed ones of four tools."""
    for number in range(30):
        call(started, "/tools/weather", {"lat": 48.85, "lon": 2.35}, f"a{number}")
        if number % 3 == 0:
            call(started, "/tools/weather", {"lat": "48.85", "lon": "2.35"}, f"b{number}")
        if number % 5 == 0:
            call(started, "/tools/currency", {"amount": 5, "from": "USD", "to": "Euro"}, f"c{number}")
            call(started, "/tools/currency", {"amount": 5, "from": "USD", "to": "EUR"}, f"c{number}")
        if number % 10 == 0:
            call(started, "/tools/read_file", {"path": "welcome.txt"}, f"d{number}")
    for number in range(6):
        call(started, "/tools/weather", {"latitude": 48.85, "longitude": 2.35}, f"e{number}")
    for number in range(5):
        call(started, "/tools/Divide", {"a": 5, "b": 0}, f"f{number}")
    for number in range(3):
        call(started, "/tools/weather", {"lat": f"{number} north", "lon": 2.35}, "waits")


def take(started: Demo, running: Any, folder: Path) -> list[Path]:
    """Takes both pictures and gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "overview.png", folder / "call.png"]
    with page(running, viewport=SIZE, color_scheme="light") as shown:
        shown.goto(link(started))
        shown.get_by_text("waits for a human").wait_for()
        shown.screenshot(path=str(paths[0]))
        shown.goto(link(started).partition("#")[0] + "#/calls?outcome=refused")
        shown.locator(".call").first.click()
        shown.locator(".open pre").first.wait_for()
        shown.mouse.move(0, 0)
        shown.screenshot(path=str(paths[1]))
    return paths


if __name__ == "__main__":
    with demo() as started, browser() as running:
        load(started)
        sys.stdout.write("\n".join(map(str, take(started, running, FOLDER))) + "\n")
