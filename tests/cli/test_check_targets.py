"""`check` shows where each route leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.__main__ import main

ROUTE = "routes: [{path: /x/a, upstream: u, tool: t, validation: off}]\n"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000/x/a"),
        ("http://127.0.0.1:9000/base/?key=abc", "http://127.0.0.1:9000/base/x/a"),
        ("http://${TOOL_HOST:-tools}:9000", "http://${TOOL_HOST:-tools}:9000/x/a"),
        ("unix:/run/tool.sock", "unix:/run/tool.sock/x/a"),
    ],
)
def test_shows_the_url(tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str, shown: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"version: 1\nupstreams: {{u: {{url: '{url}'}}}}\n{ROUTE}")
    assert 0 == main(["check", str(path)])
    said = capsys.readouterr().out
    assert f"t -> {shown}\n" in said
    assert "abc" not in said
