"""Dry runs of operations: path, query, headers and body of the request that is meant are judged together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.config.load import load
from proxy.server import start_serving
from tests.serving.wire import exchange

SOURCE = str(Path(__file__).parent / "trips.yaml")
PATCH = ["--route", "/trips/7?notify=true", "--method", "PATCH"]


@pytest.fixture
def config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    words = ["--upstream", "http://127.0.0.1:9", "--into", str(tmp_path)]
    assert 0 == main(["import", "openapi", SOURCE, *words])
    capsys.readouterr()
    return str(tmp_path / "config.yaml")


def test_path_query_and_body_are_validated_together(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["validate", "-c", config, *PATCH, '{"title": "Rome", "budget": "12.50"}'])
    lines = capsys.readouterr().out.splitlines()
    assert "repairs: string_to_number at /budget" == lines[1]
    sent = json.loads(lines[2].removeprefix("arguments: "))
    assert {"trip-id": 7, "notify": True, "title": "Rome", "budget": 12.5} == sent


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--route", "/trips/0?notify=true", "--method", "PATCH", '{"title": "Rome"}'], "trip-id"),
        (["--route", "/trips/7", "--method", "PATCH", '{"title": "Rome"}'], "notify"),
        ([*PATCH, '{"title": ""}'], "title"),
        (["--route", "/trips/7", "--method", "get", "--header", "X-Team: far too long"], "X-Team"),
        (["--route", "/airports?q=x"], "q"),
    ],
)
def test_rejects_a_wrong_value_in_any_place(
    words: list[str], wrong: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == main(["validate", "-c", config, *words])
    assert f"'{wrong}'" in capsys.readouterr().out.split("answer: HTTP")[0].replace(f"/{wrong}", f"'{wrong}'")


def test_a_path_with_several_methods_asks_for_one(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["validate", "-c", config, "--route", "/trips/7", "{}"])
    assert (
        "validate: /trips/7 takes DELETE, GET, HEAD, PATCH, PUT: say which with --method\n" == capsys.readouterr().err
    )


async def test_an_operator_asks_the_running_proxy_the_same(config: str) -> None:
    text = Path(config).read_text(encoding="utf-8").replace("127.0.0.1:8080", "127.0.0.1:0")
    Path(config).write_text(f"{text}\nadmin: {{listen: '127.0.0.1:0'}}\n", encoding="utf-8")
    serving = await start_serving(load(config, {}))
    try:
        port = int(str(serving.admin_url).rsplit(":", 1)[1])

        async def validate(**question: object) -> Any:
            body = json.dumps(question).encode()
            head = f"POST /-/validate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            return json.loads((await exchange(port, head.encode() + body)).body)

        target = {"route": "/trips/7?notify=true", "method": "PATCH"}
        good = await validate(**target, body={"title": "Rome"})
        assert ("forward", {"trip-id": 7, "notify": True, "title": "Rome"}) == (good["decision"], good["arguments"])
        bad = await validate(route="/trips/x?notify=true", method="PATCH", body={"title": "Rome"})
        assert ("refuse", ["/trip-id"]) == (bad["decision"], [error["path"] for error in bad["errors"]])
        header = await validate(route="/trips/7", method="GET", headers={"X-Team": "far too long"})
        assert ("refuse", ["/X-Team"]) == (header["decision"], [error["path"] for error in header["errors"]])
        assert "say `method`, one of: DELETE, GET" in json.dumps(await validate(route="/trips/7", body={}))
    finally:
        await serving.stop(grace=0.5)
