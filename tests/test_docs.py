"""Docs that can fail: links lead somewhere; the blocks of the README and the tour run and print what they show."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

from proxy.__main__ import VERBS
from tests.cli import curl
from tests.extensions.correction.running import ROOT, Demo, demo
from tests.extensions.mcp.server import McpServer
from tests.extensions.operations.shop import shop
from tests.serving.wire import tool

PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR: Final = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")

_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def anchor(heading: str) -> str:
    """The anchor under which a heading is found (as GitHub makes it)."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for link in _LINK.findall(_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, fragment = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            lost.append(f"{link}: no such file")
        elif fragment and anchor(fragment) not in map(anchor, _HEADING.findall(target.read_text(encoding="utf-8"))):
            lost.append(f"{link}: no such heading")
    assert [] == lost


# --- the README and the tour ------------------------------------------------------------------------------------------
def blocks(page: str, language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(page) if kind == language]


def shown(page: str) -> Iterator[tuple[str, str]]:
    """Each command of a page with the output it shows."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


@pytest.fixture
def started() -> Iterator[Demo]:
    with demo() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as the reader has it: the example, and the config of the tour."""
    shutil.copy(ROOT / "config.example.yaml", tmp_path)
    shutil.copytree(ROOT / "schemas", tmp_path / "schemas")
    (tmp_path / "config.yaml").write_text(blocks(TOUR, "yaml")[0], encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("page", "least"), [(README, 2), (TOUR, 5)], ids=["README", "tour"])
def test_a_command_prints_what_the_page_shows(page: str, least: int, started: Demo, folder: Path) -> None:
    printed = [(command, output, run(command, started, folder)) for command, output in shown(page)]
    assert len(printed) >= least
    for command, output, said in printed:
        assert re.fullmatch(pattern(output), said.strip(), re.DOTALL), f"$ {command}\nshown:\n{output}\nsaid:\n{said}"


def run(command: str, started: Demo, folder: Path) -> str:
    """Returns what a command of a page prints."""
    if command.startswith("curl "):
        return curl.run(command, started.port)[1]
    words = re.sub(r"^toolcall-proxy ", f"{sys.executable} -m proxy ", command)
    done = subprocess.run(
        ["bash", "-c", words],  # noqa: S607
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def pattern(output: str) -> str:
    """Shown output as a regular expression: `…` replaces left-out text."""
    return ".*?".join(re.escape(part) for part in output.strip().split("…"))


def test_the_make_targets_of_the_readme_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"^make (\w+)", "\n".join(blocks(README, "sh")), re.MULTILINE)
    assert ["run", "test"] == named
    assert set(named) <= set(targets)


def test_the_readme_fits_one_screen_and_a_half() -> None:
    assert len(README.splitlines()) <= 90


async def test_each_serve_command_of_the_readme_serves() -> None:
    """`demo` runs above."""
    lines = [line.partition("#")[0].split() for block in blocks(README, "sh") for line in block.splitlines()]
    commands = [line[1:] for line in lines if line[0] == "toolcall-proxy"]
    assert ["demo", "serve", "serve"] == [words[0] for words in commands]
    with shop() as described:
        async with tool(McpServer()) as server:
            real = {
                "http://127.0.0.1:8000/openapi.json": described.url,
                "http://127.0.0.1:9000/mcp": f"{server.url}/mcp",
            }
            for words in commands[1:]:
                assert set(real) & set(words)
                served = [sys.executable, "-m", "proxy", *(real.get(word, word) for word in words)]
                process = await asyncio.create_subprocess_exec(
                    *served, "--listen", "127.0.0.1:0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
                )
                assert process.stdout is not None
                first = await process.stdout.readline()
                process.kill()
                await process.wait()
                assert first.startswith(b"listening on http://127.0.0.1:")


def test_no_text_names_this_package_on_an_index() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "proxy").rglob("*.py"), ROOT / "README.md"]
    named = re.compile(r"(pip|pipx|uv) (tool )?install '?toolcall[-_]proxy")
    assert [] == [page.name for page in pages if named.search(page.read_text(encoding="utf-8"))]


def test_the_readme_names_only_verbs_that_exist() -> None:
    assert set(re.findall(r"toolcall-proxy ([a-z]+)", README)) <= set(VERBS)


def test_the_changelog_names_every_verb() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert set() == {verb for verb in VERBS if f"`{verb}`" not in changes}


# --- collected material -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "folder", sorted(path for path in (ROOT / "tests" / "data").iterdir() if path.is_dir()), ids=lambda path: path.name
)
def test_collected_data_names_its_source_and_licence(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8").lower()
    assert "licen" in text
    assert "source" in text or "http" in text
