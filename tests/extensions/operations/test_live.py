"""`check --live`: what has changed at a source since it was imported, tool by tool."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.importing.live import DescriptionChange, list_changes
from tests.extensions.operations.shop import BOOKSHOP, DATA, Shop, shop


@pytest.fixture
def config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    return str(tmp_path / "config.yaml")


def imported(tmp_path: Path, running: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["import", "openapi", running.url, "--into", str(tmp_path)])
    capsys.readouterr()


def test_a_source_as_it_was_is_no_finding(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    with shop() as running:
        imported(tmp_path, running, capsys)
        assert 0 == main(["check", config, "--live"])
        assert f"{running.url}: 5 as imported, 0 changed, 0 gone" in capsys.readouterr().out.splitlines()
        assert 0 == main(["check", config, "--live", "-q"])
        assert ("", "") == tuple(capsys.readouterr())


def test_lists_changes_by_their_pointers(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    with shop() as running:
        imported(tmp_path, running, capsys)
        now = copy.deepcopy(BOOKSHOP)
        order: Any = now["components"]["schemas"]["Order"]
        order["properties"]["copies"]["maximum"] = 9
        order["properties"]["size"]["enum"].append("huge")
        order["properties"]["wrap"] = {"type": "boolean"}
        del order["properties"]["gift"]
        order["required"] = ["title", "price"]
        now["paths"]["/return"] = {"post": {**now["paths"]["/book"]["post"], "operationId": "give_back"}}
        del now["paths"]["/orders/{order_id}"]
        running.described = json.dumps(now).encode()
        assert 1 == main(["check", config, "--live", "-q"])
    assert [
        f"{running.url}: 2 as imported, 2 changed, 1 gone",
        "  book_book_post:",
        "    changed  /$defs/Order/properties/copies/maximum: 99.0 is now 9",
        '    removed  /$defs/Order/properties/gift: {"type":"boolean","title":"Gift","default":false}',
        '    added    /$defs/Order/properties/size/enum: "huge"',
        '    added    /$defs/Order/properties/wrap: {"type":"boolean"}',
        '    removed  /$defs/Order/required: "copies"',
        "  pay_pay_post:",
        "    changed  /properties/copies/maximum: 99.0 is now 9",
        '    removed  /properties/gift: {"type":"boolean","title":"Gift","default":false}',
        '    added    /properties/size/enum: "huge"',
        '    added    /properties/wrap: {"type":"boolean"}',
        '    removed  /required: "copies"',
        "  change_orders__order_id__put: gone",
        "  new, served by no route: POST /return",
    ] == capsys.readouterr().out.splitlines()


def test_an_edit_of_ones_own_is_no_drift(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    with shop() as running:
        imported(tmp_path, running, capsys)
        schema = tmp_path / "schemas" / "book_book_post.yaml"
        schema.write_text(schema.read_text().replace("maximum: 99.0", "maximum: 5"))
        assert 0 == main(["check", config, "--live", "-q"])


def test_reports_a_schema_that_now_guards_less_than_it_says(
    tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with shop() as running:
        imported(tmp_path, running, capsys)
        now = copy.deepcopy(BOOKSHOP)
        body = now["paths"]["/book"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        body["requird"] = ["title"]
        running.described = json.dumps(now).encode()
        assert 1 == main(["check", config, "--live", "-q"])
    assert (
        "  POST /book: its schema guards less than it says: /requird: unknown keyword 'requird', which JSON Schema "
        "ignores (did you mean 'required'?)"
    ) in capsys.readouterr().out


def test_a_tool_that_can_no_longer_be_validated_says_why(
    tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with shop() as running:
        imported(tmp_path, running, capsys)
        now = copy.deepcopy(BOOKSHOP)
        now["paths"]["/book"]["post"]["requestBody"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
        running.described = json.dumps(now).encode()
        assert 1 == main(["check", config, "--live", "-q"])
    assert "  book_book_post: gone: its body is text/plain, neither JSON nor a form" in capsys.readouterr().out


def test_a_file_is_looked_for_from_the_configs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "shop.json"
    source.write_bytes((DATA / "bookshop.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    upstream = ["--upstream", "http://127.0.0.1:9"]
    assert 0 == main(["import", "openapi", "shop.json", "--into", "made", *upstream])
    monkeypatch.chdir("/")
    assert 0 == main(["check", str(tmp_path / "made" / "config.yaml"), "--live", "-q"])
    source.write_text(source.read_text().replace('"maximum": 99.0', '"maximum": 9.0'))
    assert 1 == main(["check", str(tmp_path / "made" / "config.yaml"), "--live", "-q"])


def test_a_config_without_a_record_has_nothing_to_compare(
    tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(config).write_text("version: 1\nroutes: {/a: {upstream: none, tool: a, validation: off}}\n")
    assert 2 == main(["check", config, "--live", "-q"])
    assert (
        f"check --live: cannot read {tmp_path}/imported.json: No such file or directory  (it is written by "
        "`toolcall-proxy import`; a config written by hand has no source to compare with)\n" == capsys.readouterr().err
    )


def test_reports_a_source_that_is_gone(tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    with shop() as running:
        imported(tmp_path, running, capsys)
    assert 2 == main(["check", config, "--live", "-q"])
    assert capsys.readouterr().err.startswith(f"check --live: {running.url}: ")


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"a": 1}, {"a": 1.0}, []),
        (
            {"type": "string"},
            {"type": ["string", "null"]},
            [DescriptionChange("changed", ("type",), "string", ["string", "null"])],
        ),
        ({"required": ["a", "b"]}, {"required": ["b", "a"]}, []),
        ([1, 2], [2, 3], [DescriptionChange("removed", (), before=1), DescriptionChange("added", (), after=3)]),
        (
            {"anyOf": [{"type": "string"}]},
            {"anyOf": [{"type": "integer"}, {}]},
            [
                DescriptionChange("changed", ("anyOf", 0, "type"), "string", "integer"),
                DescriptionChange("added", ("anyOf", 1), after={}),
            ],
        ),
        (True, {}, [DescriptionChange("changed", (), True, {})]),
    ],
)
def test_drift(before: JsonValue, after: JsonValue, changes: list[DescriptionChange]) -> None:
    assert changes == list(list_changes(before, after))


def test_names_the_tools_that_refuse_null_at_optional_keys(
    tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> list[str]:
        assert 0 == main(["check", config, "--live"])
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("null at an optional key")]

    with shop() as running:
        imported(tmp_path, running, capsys)
        before = told()
        decided = (
            Path(config)
            .read_text(encoding="utf-8")
            .replace("version: 1", "version: 1\ndefaults: {null_optional: drop}")
        )
        Path(config).write_text(decided, encoding="utf-8")
        after = told()

    assert 1 == len(before)
    assert "refused by book_book_post" in before[0]
    assert "`null_optional: drop` in `defaults`" in before[0]
    assert [] == after
