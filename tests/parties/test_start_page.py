"""docs/start.md with a real FastAPI service: its commands, run in their order, say what the page shows."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest

from proxy.__main__ import VERBS, main
from tests.cli import curl
from tests.parties.environment import ADMIN, ROOT, needs, proxy, python
from tests.test_docs import pattern

pytestmark = pytest.mark.large

PAGE: Final = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_page_does_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("py1")
    monkeypatch.chdir(tmp_path)
    (app,) = (text for kind, text in BLOCKS if kind == "python")
    Path("app.py").write_text(app)
    command = ["-m", "uvicorn", "app:app", "--port", "0"]
    service = await asyncio.create_subprocess_exec(python("py1"), *command, stderr=asyncio.subprocess.PIPE)
    try:
        base = await _await_address(service)
        assert 0 == await asyncio.to_thread(main, ["import", "openapi", f"{base}/openapi.json", "--into", "guarded"])
        _say_where_it_listens(Path("guarded/config.yaml"))
        with proxy(tmp_path / "guarded" / "config.yaml") as port:
            for asked, shown in _list_commands():
                said = await asyncio.to_thread(curl.run, asked, port)
                assert re.fullmatch(pattern(shown), said[1].strip(), re.DOTALL), said
        schema, change = Path("guarded/schemas/place_order.yaml"), _read_change()
        written = schema.read_text()
        assert written.count("      shipping:\n        type: string\n        enum: [standard, express]\n") == 1
        schema.write_text(re.sub(r"^      shipping:\n(?:        .*\n)*", change, written, flags=re.MULTILINE))
        assert 0 == main(["check", "guarded/config.yaml"])
    finally:
        service.terminate()
        await service.wait()


async def _await_address(service: asyncio.subprocess.Process) -> str:
    """Returns where uvicorn says that it serves."""
    assert service.stderr is not None
    while line := (await service.stderr.readline()).decode():
        if found := re.search(r"running on (http://[\d.:]+)", line):
            return found[1]
    raise AssertionError("uvicorn ended before it served")


def _say_where_it_listens(config: Path) -> None:
    """Any free ports in place of the page's."""
    config.write_text(config.read_text().replace("127.0.0.1:8080", "127.0.0.1:0") + ADMIN)


def _list_commands() -> list[tuple[str, str]]:
    (tour,) = (text for kind, text in BLOCKS if kind == "console")
    parts = (part.partition("\n") for part in re.split(r"^\$ ", tour, flags=re.MULTILINE)[1:])
    return [(asked, shown) for asked, _, shown in parts]


def _read_change() -> str:
    (change,) = (text for kind, text in BLOCKS if kind == "yaml")
    return str(change)


def test_the_verbs_of_the_page_exist() -> None:
    assert set(re.findall(r"toolcall-proxy ([a-z]+)", PAGE)) <= set(VERBS)
