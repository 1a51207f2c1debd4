"""The pictures of docs/console.md can be made from the demo, and are small."""

from __future__ import annotations

from pathlib import Path

from tests.extensions.console.browser import browser
from tests.extensions.console.pictures import FOLDER, LARGEST, SMALL, load, shrink, take
from tests.extensions.correction.running import ROOT, demo


def test_makes_small_pictures_of_the_page_from_the_demo(tmp_path: Path) -> None:
    with browser() as running, demo() as started:
        load(started)
        made = take(started, running, tmp_path)
        before = made[0].stat().st_size
        shrink(running, made[0])
    assert 10_000 < made[0].stat().st_size < before / 2
    assert [] == [path.name for path in made if not 10_000 < path.stat().st_size < LARGEST]
    assert [] == [path.name for path in FOLDER.iterdir() if path.stat().st_size > SMALL]
    page = (ROOT / "docs" / "console.md").read_text(encoding="utf-8")
    assert [] == [path.name for path in made if f"(pictures/{path.name})" not in page]
    assert sorted(path.name for path in made) == sorted(path.name for path in FOLDER.iterdir())
