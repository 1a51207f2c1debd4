"""The pictures of docs/console.md, each page of the console in both themes, made from the demo under a fixed load.

python -m tests.extensions.console.pictures    writes docs/pictures (`make pictures`)
"""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.extensions.console.browser import browser, page
from tests.extensions.console.test_pages import TOOL, call, link
from tests.extensions.correction.running import Demo, demo

FOLDER: Final = Path(__file__).parents[3] / "docs" / "pictures"
SIZE: Final = {"width": 1000, "height": 780}
# The largest picture in bytes, as it is taken and as it is kept.
LARGEST: Final = 250_000
SMALL: Final = 64_000
# Milliseconds after which a page has drawn what it asked for.
SETTLED: Final = 300
# Name of a picture -> the page's place, and what is there once it is complete.
PAGES: Final = {
    "overview": ("#/overview", "svg.bars"),
    "calls": ("#/calls", ".call"),
    "call": ("#/calls?outcome=refused", ".open pre"),
    "tools": (TOOL, "text=try this change"),
    "try": ("#/try", "textarea"),
    "conversations": ("#/conversations", "tbody tr"),
    "upstreams": ("#/upstreams", "tbody tr"),
    "config": ("#/config", "pre"),
}


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
    """Takes the pictures of every page in both themes and gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    base, paths = link(started).partition("#")[0], []
    for theme, ending in (("light", ""), ("dark", "-dark")):
        with page(running, viewport=SIZE, color_scheme=theme) as shown:
            shown.goto(link(started))
            shown.get_by_text("waits for a human").wait_for()
            for name, (place, seen) in PAGES.items():
                shown.goto(base + place)
                if name == "call":
                    shown.locator(".call").first.click()
                shown.locator(seen).first.wait_for()
                shown.mouse.move(0, 0)
                shown.wait_for_timeout(SETTLED)
                paths.append(folder / f"{name}{ending}.png")
                paths[-1].write_bytes(shown.screenshot())
    return paths


# --- small files ------------------------------------------------------------------------------------------------------
# Gives the pixels of a PNG, four bytes each, as Base64.
PIXELS: Final = """async (data) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
  const paper = new OffscreenCanvas(image.width, image.height).getContext("2d");
  paper.drawImage(image, 0, 0);
  const bytes = paper.getImageData(0, 0, image.width, image.height).data;
  const parts = [];
  for (let at = 0; at < bytes.length; at += 32768) parts.push(String.fromCharCode(...bytes.subarray(at, at + 32768)));
  return btoa(parts.join(""));
}"""


def shrink(running: Any, path: Path) -> None:
    """Writes a picture again with the 256 colors that it needs most: a third of the size, and the same to the eye."""
    with page(running) as paper:
        pixels = base64.b64decode(paper.evaluate(PIXELS, base64.b64encode(path.read_bytes()).decode()))
    colors = memoryview(pixels).cast("I")
    counted = Counter(colors)
    kept = [color for color, _ in counted.most_common(256)]
    shown = [color.to_bytes(4, sys.byteorder)[:3] for color in kept]
    index = {color: number for number, color in enumerate(kept)}
    for color in counted.keys() - index.keys():
        red, green, blue, _ = color.to_bytes(4, sys.byteorder)
        index[color] = min(
            range(len(shown)),
            key=lambda at: (shown[at][0] - red) ** 2 + (shown[at][1] - green) ** 2 + (shown[at][2] - blue) ** 2,
        )
    width, height = SIZE["width"], SIZE["height"]
    rows = bytes(map(index.__getitem__, colors))
    body = b"".join(b"\0" + rows[at : at + width] for at in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", b"".join(shown)), (b"IDAT", zlib.compress(body, 9)), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_write_chunk(name, data) for name, data in chunks))


def _write_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


if __name__ == "__main__":
    with demo() as started, browser() as running:
        load(started)
        made = take(started, running, FOLDER)
        for path in made:
            shrink(running, path)
    sys.stdout.write("\n".join(map(str, made)) + "\n")
