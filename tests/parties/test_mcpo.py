"""mcpo, which makes plain JSON of an MCP server, behind routes that `import openapi` has written."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.parties.environment import ADMIN, PARTIES, ROOT, needs, proxy, servers
from tests.parties.mistakes import ABSENT, OBJECTS, RAW, Mistake, verdict
from tests.parties.rawmcp import Answer, posted
from tests.ports import hold_port

pytestmark = pytest.mark.large

JSON: Final = "application/json"


@contextlib.contextmanager
def mcpo(upstream: int, log: Path) -> Iterator[str]:
    """mcpo in front of an MCP server: where its description is."""
    port = hold_port()  # mcpo takes no port 0
    url = f"http://127.0.0.1:{port}/openapi.json"
    words = [str(PARTIES / "py1" / "bin" / "mcpo"), "--host", "127.0.0.1", "--port", str(port)]
    goal = ["--server-type", "streamable-http", "--", f"http://127.0.0.1:{upstream}/mcp"]
    with log.open("w") as lines:
        process = subprocess.Popen([*words, *goal], stdout=lines, stderr=lines)
        try:
            for _ in range(6000):
                with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=60) as answer:
                    if json.load(answer).get("paths"):
                        break
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            else:
                raise AssertionError(log.read_text())
            yield url
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the address of the proxy in front of mcpo. The parts of the schema that mcpo drops were put back by
    hand."""
    needs("py1", "py2")
    folder = tmp_path_factory.mktemp("imported")
    with servers("py2") as ports, mcpo(ports["high"], folder / "mcpo.log") as url:
        words = ["import", "openapi", url, "--into", str(folder)]
        subprocess.run([sys.executable, "-m", "proxy", *words], cwd=ROOT, check=True, capture_output=True)
        config, schema = folder / "config.yaml", folder / "schemas" / "tool_book_post.yaml"
        config.write_text(config.read_text() + ADMIN)
        schema.write_text(schema.read_text().replace("title: Size\n", "title: Size\n        enum: [small, large]\n"))
        with proxy(config) as port:
            yield f"http://127.0.0.1:{port}"


def told(answer: Answer) -> dict[str, object]:
    """An answer in the form that MCP's clients give."""
    return {"error": answer.status >= 400, "text": answer.body.decode()}


@pytest.mark.parametrize("mistake", [each for each in OBJECTS if each.tool == "book"], ids=lambda each: each.name)
def test_no_mistake_arrives_wrong_or_is_lost(mistake: Mistake, imported: str) -> None:
    answer = posted(f"{imported}/book", json.dumps(mistake.arguments).encode(), accept=JSON)
    assert "" == verdict(mistake, told(answer))
    assert answer.status in (200, 400)


@pytest.mark.parametrize("mistake", RAW, ids=lambda each: each.name)
def test_a_body_that_is_no_object_is_repaired_or_explained(mistake: Mistake, imported: str) -> None:
    body = b"" if mistake.arguments is ABSENT else json.dumps(mistake.arguments).encode()
    answer = posted(f"{imported}/book", body, accept=JSON)
    assert "" == verdict(mistake, told(answer))
    assert answer.status in (200, 400)


def test_agents_read_the_description_through_the_proxy(imported: str) -> None:
    with urllib.request.urlopen(f"{imported}/openapi.json", timeout=300) as answer:  # noqa: S310 - loopback
        assert {"/book", "/fail", "/release", "/steps"} == set(json.load(answer)["paths"])
