"""Descriptions of operations: definitions with all arguments and the URL, and the lists of `check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.__main__ import main
from tests.extensions.operations.served import TRIPS, ask, served
from tests.serving.wire import answer, replies, tool

SOURCE = str(Path(__file__).parent / "trips.yaml")


@pytest.fixture
def config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    words = ["--upstream", "http://127.0.0.1:9", "--into", str(tmp_path)]
    assert 0 == main(["import", "openapi", SOURCE, *words])
    capsys.readouterr()
    return str(tmp_path / "config.yaml")


def test_definitions_hold_all_arguments_and_say_where_to_send_them(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["export", "-c", config, "-f", "openai", "-t", "update_trip", "--with-http"])
    (exported,) = json.loads(capsys.readouterr().out)
    parameters = exported["definition"]["function"]["parameters"]
    assert ["trip-id", "notify", "title", "budget", "tags"] == list(parameters["properties"])
    assert ["trip-id", "notify", "title"] == parameters["required"]
    assert {"method": "PATCH", "url": "http://127.0.0.1:8080/trips/{trip_id}"} == exported["http"]


def test_guidance_ends_with_the_urls(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["guidance", "-c", config, "-t", "find_airports", "--with-http"])
    assert "- find_airports: GET http://127.0.0.1:8080/airports" == capsys.readouterr().out.splitlines()[-1]


def test_check_says_of_each_operation_what_becomes_of_it(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["check", config])
    said = capsys.readouterr().out
    assert "GET,HEAD /trips/{trip_id}" in said
    assert "POST   /notes" in said
    assert "refused      its body is text/plain, neither JSON nor a form" in said


def test_mistakes_are_named_from_where_check_was_called(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "schemas" / "get_trip.yaml").write_text("type: objekt\n")
    monkeypatch.chdir(tmp_path.parent)
    assert 2 == main(["check", f"{tmp_path.name}/config.yaml"])
    assert capsys.readouterr().err.startswith(f"{tmp_path.name}/schemas/get_trip.yaml:1:7")


def test_the_schema_of_configs_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["schema"])
    assert "routes" in json.loads(capsys.readouterr().out)["properties"]


async def test_serves_every_exported_operation(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["export", "-c", config, "-f", "openai"])
    names = [each["function"]["name"] for each in json.loads(capsys.readouterr().out)]
    async with tool(replies(answer("200 OK", b"{}"))) as server, served(TRIPS, server.url) as port:
        statuses = [(await ask(port, "POST", f"/tools/{name}", b"{}")).status for name in names]
    assert {200, 400} == set(statuses)  # known by their names, each of them
