"""The documentation as a site: each page has its place, each link stays inside, the pages for readers stay short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted(DOCS.rglob("*.md"))
# Words that a reader may meet outside of code, in the README and on all pages but reference, evidence and decisions.
MOST_WORDS: Final = 22_000
_LOOKED_UP: Final = ("reference/", "runbook.md", "glossary.md", "evidence/", "tested.md", "adr/")


def read_nav() -> list[str]:
    """The pages of the site's navigation."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(each)

    walk(yaml.safe_load(text.replace("!!python/name:", ""))["nav"])
    return found


def test_every_page_has_one_place_in_the_navigation() -> None:
    names = [page.relative_to(DOCS).as_posix() for page in PAGES]
    listed = [name for name in names if not re.match(r"evidence/|adr/0", name)]
    assert sorted(listed) == sorted(read_nav())


def test_the_index_and_the_page_on_tests_name_every_page() -> None:
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("README.md", "tested.md", "adr/README.md"))
    names = [page.relative_to(DOCS).as_posix().removeprefix("adr/0") for page in PAGES]
    assert [] == [name for name in names if name != "README.md" and f"{name}" not in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_no_link_leaves_the_folder_of_the_site(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [] == [link for link in links if not (page.parent / link).resolve().is_relative_to(DOCS)]


def count_words(page: Path) -> int:
    """The number of words of a page outside of code blocks and link targets."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return sum(1 for word in re.sub(r"\]\([^)]*\)", "]", text).split() if re.search(r"\w", word))


def test_the_pages_for_readers_stay_short() -> None:
    read = [page for page in PAGES if not page.relative_to(DOCS).as_posix().startswith(_LOOKED_UP)]
    assert sum(map(count_words, [ROOT / "README.md", *read])) <= MOST_WORDS


def test_the_lock_of_the_site_pins_versions_and_names_no_address() -> None:
    lines = (ROOT / "requirements-docs.lock").read_text(encoding="utf-8").splitlines()[1:]
    assert [] == [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[\w.]+", line)]
    assert "mkdocs-material" in {line.partition("==")[0] for line in lines}


@pytest.mark.large
def test_the_site_has_no_broken_link_or_anchor(tmp_path: Path) -> None:
    program = Path(sys.executable).parent.parent / "site" / "bin" / "mkdocs"
    if not program.exists():
        pytest.skip("no mkdocs here: run `make site`")
    done = subprocess.run(
        [str(program), "build", "--strict", "-d", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    assert (tmp_path / "site" / "search" / "search_index.json").stat().st_size > 100_000
