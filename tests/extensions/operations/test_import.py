"""`import openapi`: the config it writes, what it leaves out, and that it never writes over a file."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.config.files.yaml12 import read_yaml
from proxy.config.load import load
from proxy.server import start_serving
from tests.extensions.operations.shop import BOOKSHOP, DATA, Shop, shop
from tests.serving.wire import exchange, post

RELAY = "(--relay passes it on unjudged)"
GOOD = b'{ "title" : "Emma", "copies" : 3, "price" : 0.50 }'


def imported(tmp_path: Path, source: str, *words: str) -> int:
    return main(["import", "openapi", source, "--into", str(tmp_path / "made"), *words])


def config(tmp_path: Path) -> Any:
    return read_yaml((tmp_path / "made" / "config.yaml").read_bytes()).value


def test_a_fastapi_server_becomes_a_config_that_check_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with shop() as running:
        assert 0 == imported(tmp_path, running.url)
    assert [
        f"{running.url}: Bookshop, OpenAPI 3.1.0, 5 operations",
        "judged (5):",
        "  POST /book              book_book_post",
        "  PUT /orders/{order_id}  change_orders__order_id__put",
        "  POST /ping              ping_ping_post",
        "  GET /search             search_search_get",
        "  POST /pay               pay_pay_post",
        "relayed (1):",
        "  GET /openapi.json  the description itself",
        "",
        "5 judged, 1 relayed, 0 left out",
        f"wrote {tmp_path}/made/config.yaml, 5 schemas below {tmp_path}/made/schemas, {tmp_path}/made/imported.json",
        f"next: toolcall-proxy serve {tmp_path}/made/config.yaml",
    ] == capsys.readouterr().out.splitlines()
    assert 0 == main(["check", "-q", str(tmp_path / "made" / "config.yaml")])


def test_the_written_config_reads_like_a_handwritten_one(tmp_path: Path) -> None:
    with shop() as running:
        imported(tmp_path, running.url, "--only", "book*")
    written = (tmp_path / "made" / "config.yaml").read_text()
    assert (
        f"""\
# yaml-language-server: $schema=config.schema.json
# Written by `toolcall-proxy import openapi` from {running.url}. It is yours now: edit it, and the schemas beside it.
#   toolcall-proxy check config.yaml --live   what has changed at the source since (it reads imported.json)
#   toolcall-proxy serve config.yaml
#   toolcall-proxy schema > config.schema.json          what editors complete and check this file by

version: 1

listen: "127.0.0.1:8080"

upstreams:
  tools:
    url: http://127.0.0.1:{running.port}

tools:
  book_book_post:
    description: |-
      Orders a book.

      Costs $$5 at least; $${{HOME}} delivery is free.
    schema: schemas/book_book_post.yaml
    request:
      method: POST
      path: /book
      body: json
      body_required: true

routes:
  - path: /book
    upstream: tools
    tool: book_book_post
  - path: "/tools/{{tool}}"
    upstream: tools
  - path: /openapi.json
    methods: [GET]
    upstream: tools
    passthrough: true
"""
        == written
    )
    schema = (tmp_path / "made" / "schemas" / "book_book_post.yaml").read_text()
    assert schema.startswith('# The arguments of book_book_post.\n$ref: "#/$defs/Order"\n$defs:\n  Order:\n')
    assert "        enum: [small, large]\n" in schema


def test_a_description_keeps_its_dollars(tmp_path: Path) -> None:
    with shop() as running:
        imported(tmp_path, running.url)
    loaded = load(tmp_path / "made" / "config.yaml", {})
    book = loaded.config.routes[0].tools["book_book_post"]
    assert "Orders a book.\n\nCosts $5 at least; ${HOME} delivery is free." == book.description


async def test_the_written_config_repairs_refuses_and_keeps_clean_calls(tmp_path: Path) -> None:
    with shop() as running:
        _write(tmp_path, running)
        serving = await start_serving(load(tmp_path / "made" / "config.yaml", os.environ))
        try:
            port = int(serving.url.rsplit(":", 1)[1])
            clean = await exchange(port, post("/book", GOOD))
            mended = await exchange(port, post("/book", b'{"title": "Emma", "copies": "3", "price": "0.50"}'))
            wrong = await exchange(port, post("/book", b'{"title": "Emma", "copies": 3.7, "price": 1}'))
            elsewhere = await exchange(port, post("/pay", GOOD))
            changed = await exchange(port, post("/orders/7?dry_run=true", GOOD).replace(b"POST ", b"PUT ", 1))
        finally:
            await serving.stop(grace=0.5)
    assert [200, 200, 400, 400, 200] == [answer.status for answer in (clean, mended, wrong, elsewhere, changed)]
    assert [GOOD, b'{"title":"Emma","copies":3,"price":0.50}', GOOD] == running.bodies
    assert "PUT /orders/7?dry_run=true" == running.seen[-1][0]
    assert "/copies" in json.dumps(json.loads(wrong.body))


def _write(tmp_path: Path, running: Shop) -> None:
    """Imports in another process (this one has a running loop), and takes free ports."""
    words = ["import", "openapi", running.url, "--into", str(tmp_path / "made")]
    subprocess.run([sys.executable, "-m", "proxy", *words], check=True, capture_output=True)
    path = tmp_path / "made" / "config.yaml"
    path.write_text(path.read_text().replace("127.0.0.1:8080", "127.0.0.1:0") + "\nadmin: {listen: 127.0.0.1:0}\n")


def test_an_existing_file_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with shop() as running:
        (tmp_path / "made").mkdir()
        mine = tmp_path / "made" / "config.yaml"
        mine.write_text("mine")
        assert 2 == imported(tmp_path, running.url)
        assert (
            f"import: {mine} exists: nothing is written  (--into ANOTHER_FOLDER keeps it, --force replaces it)\n"
            == capsys.readouterr().err
        )
        assert [mine] == list((tmp_path / "made").rglob("*"))
        assert 0 == imported(tmp_path, running.url, "--force")
    assert "mine" != mine.read_text()


def test_relays_an_operation_that_cannot_be_validated_only_with_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = {"requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    described = {**BOOKSHOP, "paths": {**BOOKSHOP["paths"], "/note": {"put": text}}}
    with shop(described) as running:
        assert 0 == imported(tmp_path, running.url, "--relay")
        relayed = [(route["methods"], route["path"]) for route in config(tmp_path)["routes"] if "passthrough" in route]
        assert 0 == imported(tmp_path, running.url, "--force")
    assert [(["GET"], "/openapi.json"), (["PUT"], "/note")] == relayed
    (left,) = [route for route in config(tmp_path)["routes"] if "refuse" in route]
    why = "its body is text/plain, neither JSON nor a form"
    assert {"path": "/note", "methods": ["PUT"], "refuse": why} == left
    assert f"  PUT /note  {why}  {RELAY}" in capsys.readouterr().out


def test_a_file_needs_the_address_of_its_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == imported(tmp_path, str(DATA / "bookshop.json"))
    assert (
        "import: the description says nothing about where its server is  (add --upstream URL)\n"
        == capsys.readouterr().err
    )
    assert 0 == imported(tmp_path, str(DATA / "petstore.json"), "--upstream", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9" == config(tmp_path)["upstreams"]["tools"]["url"]
    assert "/api/v3/pet" == config(tmp_path)["routes"][0]["path"]


def test_headers_go_with_the_question_and_into_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with shop() as running:
        assert 0 == imported(tmp_path, f"{running.url}?v=1", "--header", "Authorization: Bearer planted-secret")
        assert "Bearer planted-secret" == {k.lower(): v for k, v in running.seen[0][1].items()}["authorization"]
    written = b"".join(path.read_bytes() for path in (tmp_path / "made").rglob("*") if path.is_file())
    assert b"planted-secret" not in written
    assert "planted-secret" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nowhere.json", "cannot read nowhere.json: No such file or directory"),
        (
            "http://127.0.0.1:9/openapi.json",
            "http://127.0.0.1:9/openapi.json: the connection was refused  (is it running",
        ),
        ("http://user:word@127.0.0.1:9/x", "this is not an http or https URL  (http://host:port/path; secrets go into"),
        ("gopher://127.0.0.1/x", "this is not an http or https URL"),
        ("http://[", "this is not an http or https URL"),
    ],
)
def test_a_source_that_cannot_be_read_is_explained(
    source: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == imported(tmp_path, source)
    error = capsys.readouterr().err
    assert error.startswith(f"import: {said}")
    assert "word" not in error


@pytest.mark.parametrize(
    ("described", "status", "said"),
    [
        (b'{"openapi": "3.1.0",}', 200, ":1:21: not JSON: trailing comma"),
        (b"- a\n- [", 200, ":3:1: not YAML: "),
        (b'{"a": 1}', 200, "no OpenAPI description  (the file must say `openapi: 3.x` or `swagger: '2.0'`)"),
        (
            b'{"openapi": "3.1.0", "servers": [{"url": "http://["}], "paths": {"/a": {"get": {}}}}',
            200,
            "the description says only 'http://[' about where its server is  (add --upstream URL)",
        ),
        (b"", 404, " answers 404  (FastAPI and mcpo publish theirs at /openapi.json)"),
        (b"", 401, " answers 401  (it wants to know who asks: --header 'Authorization: Bearer ...')"),
    ],
)
def test_explains_that_a_text_is_no_description(
    described: bytes, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with shop() as running:
        running.described, running.status = described, status
        assert 2 == imported(tmp_path, running.url)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_writes_nothing_if_there_is_nothing_to_validate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = {"requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    with shop({**BOOKSHOP, "paths": {"/search": {"put": text}}}) as running:
        assert 1 == imported(tmp_path, running.url)
    assert "import: nothing here can be judged: nothing is written\n" == capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_names_and_paths_that_a_config_cannot_have_are_changed_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = BOOKSHOP["paths"]["/book"]["post"]
    named = {"a": "order a book", "b": "Book", "c": "book", "d": "book"}
    operations = {key: {"post": {**book, "operationId": name}} for key, name in named.items()}
    paths = {
        "/spaces": operations["a"],
        "/upper": operations["b"],
        "/lower": operations["c"],
        "/same": operations["d"],
        "/tools/{tool}/{item-id}": {"post": {**book, "operationId": "item"}},
        "/tools/{x}/{y}": {"post": {**book, "operationId": "again"}},
        "/orders/{id}:cancel": {"post": {**book, "operationId": "cancel"}},
        "/own": {"post": {**book, "operationId": "own", "servers": [{"url": "https://elsewhere.test"}]}},
    }
    with shop({**BOOKSHOP, "paths": paths}) as running:
        assert 0 == imported(tmp_path, running.url)
    made = config(tmp_path)
    assert ["post_spaces", "Book", "book", "book_2", "item"] == list(made["tools"])
    assert [f"schemas/{name}.yaml" for name in ("post_spaces", "Book", "book_2", "book_2_2", "item")] == [
        tool["schema"] for tool in made["tools"].values()
    ]
    assert "/tools/{tool_}/{item_id}" == made["routes"][4]["path"]
    said = capsys.readouterr().out
    assert "POST /tools/{x}/{y}       its path is the same as that of POST /tools/{tool_}/{item_id}" in said
    assert "POST /orders/{id}:cancel  a route's path has parameters in whole segments" in said
    assert "POST /own                 it runs on another server" in said


def test_reports_a_clients_way_around_the_proxy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = {**copy.deepcopy(BOOKSHOP), "servers": [{"url": "https://shop.test/v1"}]}
    with shop(described) as running:
        assert 0 == imported(tmp_path, running.url, "--upstream", f"http://127.0.0.1:{running.port}")
    said = capsys.readouterr().out
    assert "note: the description names https://shop.test as its server: a client that follows it" in said
    assert "/v1/book" == config(tmp_path)["routes"][0]["path"]


def test_a_server_without_a_url_is_the_one_that_publishes_the_description(tmp_path: Path) -> None:
    with shop({**copy.deepcopy(BOOKSHOP), "servers": [{"url": ""}]}) as running:
        assert 0 == imported(tmp_path, running.url)
    made = config(tmp_path)
    assert "/book" == made["routes"][0]["path"]
    assert f"http://127.0.0.1:{running.port}" == made["upstreams"]["tools"]["url"]


def test_serve_openapi_needs_no_config(tmp_path: Path) -> None:
    with shop() as running:
        words = ["serve", "--openapi", running.url, "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-m", "proxy", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as served:
            assert served.stdout is not None
            first, admin, console = (served.stdout.readline().strip() for _ in range(3))
            ports = [line.rpartition(":")[2] for line in (first, admin)]
            asked = urllib.request.Request(
                f"http://127.0.0.1:{ports[1]}/-/config",
                headers={"Authorization": f"Bearer {console.partition('#k=')[2]}"},
            )
            with urllib.request.urlopen(asked) as answer:  # noqa: S310 - our own proxy
                shown = json.load(answer)["config"]
            served.kill()
    assert first.startswith("listening on http://127.0.0.1:")
    assert [f"127.0.0.1:{port}" for port in ports] == [shown["listen"], shown["admin"]["listen"]]


def test_serve_openapi_as_mcp_says_where_clients_find_its_tools(tmp_path: Path) -> None:
    with shop() as running:
        words = ["serve", "--openapi", running.url, "--as", "mcp", "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-m", "proxy", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
            assert served.stdout is not None
            assert served.stderr is not None
            lines = [served.stdout.readline()]
            while not lines[-1].startswith("clients use "):
                lines.append(served.stdout.readline())
            served.kill()
            said = served.stderr.read()
    assert lines[-1] == lines[0].replace("listening on", "clients use").rstrip() + "/mcp\n"
    assert "relay" not in said


def test_an_import_as_mcp_writes_one_route(tmp_path: Path) -> None:
    with shop() as running:
        assert 0 == imported(tmp_path, running.url, "--as", "mcp")
    assert [{"path": "/mcp", "protocol": "mcp", "upstream": "tools", "operations": "all"}] == config(tmp_path)["routes"]
    assert 5 == len(config(tmp_path)["tools"])


def test_a_hostile_description_writes_nothing_but_its_own_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = BOOKSHOP["paths"]["/book"]["post"]
    names = ["../../../escaped", ".hidden", "a\x07b\x1b[31m", "CON$$x", "${HOME}", "x" * 200]
    paths: dict[str, Any] = {
        f"/p{number}/$x": {"post": {**book, "operationId": name, "description": f"{name}\n\x1b]0;x\x07\u2028# yaml: ["}}
        for number, name in enumerate(names)
    }
    paths["/elsewhere"] = {"$ref": "other.yaml#/x"}
    paths["/unsure"] = {"post": {"parameters": [{"$ref": "#/components/parameters/none"}]}}
    with shop({**BOOKSHOP, "paths": paths, "info": {"title": "\x1b[2J", "version": "1"}}) as running:
        assert 0 == imported(tmp_path, running.url)
    said = capsys.readouterr().out
    assert not set("\x1b\x07\u2028") & set(said)
    assert "/elsewhere" in said
    assert "$ref '#/components/parameters/none' leads nowhere" in said
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"made/config.yaml", "made/imported.json"} < written
    assert all(name.startswith("made/schemas/") for name in written - {"made/config.yaml", "made/imported.json"})
    assert not any(name.startswith(".") for path in written for name in path.split("/"))
    loaded = load(tmp_path / "made" / "config.yaml", {})
    served = {name for route in loaded.config.routes for name in route.tools}
    assert {"CON$$x", "../../../escaped", ".hidden", "post_p2_x", "post_p4_x", "post_p5_x"} == served
    assert "/p0/$x" in {route.path for route in loaded.config.routes}
