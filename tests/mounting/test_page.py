"""docs/aiohttp.md runs: its application, with its config, answers what the page shows."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli import curl
from tests.cli.demo import ROOT
from tests.mounting.test_guard import running

PAGE = (ROOT / "docs" / "aiohttp.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


async def test_the_application_of_the_page_answers_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(block("yaml"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {"__name__": "page"}
    exec(compile(block("python"), "docs/aiohttp.md", "exec"), made)  # noqa: S102 - our own page
    shown = re.findall(r"^\$ (curl .*)\n(.*)$", block("console"), re.MULTILINE)
    async with running(made["application"]()) as port:
        said = [(await asyncio.to_thread(curl.run, command, port))[1] for command, _ in shown]
    assert 2 == len(shown)
    for (_, output), answer in zip(shown, said, strict=True):
        pattern = ".*".join(re.escape(part) for part in output.split("…"))
        assert re.fullmatch(pattern, answer.strip(), re.DOTALL), answer
