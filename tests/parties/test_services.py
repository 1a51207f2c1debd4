"""Whole services of other people behind the proxy: each operation called right, damaged and wrong, through both doors.

A FastAPI service, a Go service with a strict JSON reader, and Prism, which plays the petstore and the museum. Each of
them judges by itself what reaches it; a recording socket in front of it keeps the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from proxy.config.load import load
from proxy.core.check.validation import Check, compile_check
from proxy.core.contract.request_rules import WrittenRequest
from proxy.core.json.jsontext import are_equal, dumps
from proxy.core.model.values import JsonValue
from proxy.core.schema.dialects import normalise
from proxy.extensions.operations.adapters.http_request import bind_operation, write_request
from proxy.extensions.operations.cli.import_ import describe_harvest
from proxy.extensions.operations.core.http.operations import RequestTemplate
from proxy.extensions.operations.core.http_operation import HttpOperation
from proxy.extensions.operations.core.openapi import list_operations
from proxy.extensions.operations.importing.files import CONFIG, make_files, write_files
from proxy.extensions.operations.importing.harvest import FoundTool, Harvest
from proxy.extensions.operations.importing.openapi import Choice, harvest_operations
from proxy.extensions.second_judge.core.examples import make_full_example, make_minimal_example
from proxy.server import Serving, start_serving
from tests.extensions.operations.served import ask
from tests.parties.environment import CLIENTS, PARTIES, asked, needs, servers
from tests.parties.tap import Said, taps
from tests.ports import hold_port

pytestmark = pytest.mark.large

DESCRIPTIONS: Final = Path(__file__).parents[1] / "data" / "openapi"
PRISM: Final = PARTIES / "services/node_modules/.bin/prism"
# What Prism asks of every request, as the descriptions' security schemes say.
CREDENTIALS: Final = {
    "petstore": ("Authorization: Bearer t", "api_key: k"),
    "museum": ("Authorization: Basic dDp0",),
    "trips": (),
    "ledger": (),
}
SERVICES: Final = tuple(CREDENTIALS)
# A list in a query, an object with its own keys, and dates are in no example that only a schema gives.
MORE: Final[dict[str, list[dict[str, JsonValue]]]] = {
    "find_airports": [{"q": "a&b=c", "limit": 5, "kinds": ["train", "bus"], "near": [1.5, -2]}],
    "get_file": [{"name": "a b?c;d", "version": "3f2504e0-4f89-41d3-9a0c-0305e82c3301"}],
    "listEntries": [{"from": "2026-01-31", "account": [1, 2], "limit": 5}],
    "openAccount": [{"owner": "\u00dcnal", "currency": "CHF", "labels": {"a": "b"}, "contact": {"email": "a@b.ch"}}],
}


@dataclass(frozen=True)
class Call:
    """One call and what became of it. `kind` is right, damaged or wrong; `answers` are what the service said."""

    tool: str
    door: str
    kind: str
    value: JsonValue
    sent: tuple[str, str, bytes]
    status: int
    text: str
    arrived: tuple[tuple[str, str, bytes], ...]
    answers: tuple[Said, ...] = field(repr=False)


@dataclass(frozen=True)
class Run:
    """All calls to one service, its report, and what the operations said that were left out."""

    harvest: Harvest
    operations: tuple[str, ...]
    calls: tuple[Call, ...]
    left_out: tuple[tuple[int, str], ...]

    def of(self, *kinds: str) -> list[Call]:
        """The calls of some kinds."""
        return [call for call in self.calls if call.kind in kinds]


# --- the services -----------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def service(name: str, folder: Path) -> Iterator[tuple[int, JsonValue]]:
    """The port of a service, and its description."""
    if name in ("petstore", "museum"):
        with prism(DESCRIPTIONS / f"{name}.json", folder) as port:
            described = json.loads((DESCRIPTIONS / f"{name}.json").read_text(encoding="utf-8"))
            yield port, {key: value for key, value in described.items() if key != "servers"}  # Prism has no base path
        return
    with servers(name) as ports:
        url = f"http://127.0.0.1:{ports[name]}/openapi.json"
        with urllib.request.urlopen(url, timeout=60) as answer:
            yield ports[name], json.load(answer)


@contextlib.contextmanager
def prism(description: Path, folder: Path) -> Iterator[int]:
    """Prism, which answers as a description says and refuses what the description does not have."""
    port = hold_port()  # Prism takes no port 0
    log = folder / "prism.log"
    words = [str(PRISM), "mock", "--host", "127.0.0.1", "--port", str(port), str(description)]
    with log.open("w") as lines, subprocess.Popen(words, stdout=lines, stderr=lines) as process:
        try:
            for _ in range(1200):
                if "Prism is listening" in log.read_text():
                    break
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            else:
                raise AssertionError(log.read_text())
            yield port
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def guarded(harvest: Harvest, folder: Path) -> AsyncIterator[Serving]:
    """The proxy with the config that an import writes."""
    files = make_files(harvest)
    text = files[CONFIG].replace("127.0.0.1:8080", "127.0.0.1:0") + "\nadmin: off\n"
    write_files(folder, {**files, CONFIG: text}, force=True)
    with (folder / "log.jsonl").open("w") as log:
        serving = await start_serving(load(folder / CONFIG, {}), log_to=log)
        try:
            yield serving
        finally:
            await serving.stop(grace=0.5)


# --- calls ------------------------------------------------------------------------------------------------------------
def bound(tool: FoundTool) -> tuple[HttpOperation, Check]:
    """An operation as its route has it."""
    assert tool.request is not None
    check = compile_check(normalise(tool.schema)[0])
    assert isinstance(tool.request, RequestTemplate)
    return bind_operation(tool.request, check, by_name=True), check


def right(tool: FoundTool, operation: HttpOperation, check: Check) -> list[dict[str, Any]]:
    """Arguments that the schema takes: the least, all, and some written by hand."""
    examples = (make_minimal_example(check), make_full_example(check, 20))
    made: list[dict[str, Any]] = [json.loads(dumps(value)) for value in examples if isinstance(value, dict)]
    files = {each.name for each in operation.in_place("file")}
    made = [{name: "UE5H" if name in files else item for name, item in value.items()} for value in made]
    known = [*made, *MORE.get(tool.name, [])]
    assert all(map(check.accepts, known)), (tool.name, known)
    return [value for index, value in enumerate(known) if value not in known[:index]]


def damaged(check: Check, values: list[dict[str, Any]]) -> Iterator[tuple[JsonValue, dict[str, Any]]]:
    """Calls as models damage them, each with what was meant: numbers and flags as text, and all of it as one text."""
    for value in values:
        texts = {name: json.dumps(item) for name, item in value.items() if isinstance(item, bool | int | float)}
        for name, text in texts.items():
            if not check.accepts({**value, name: text}):
                yield {**value, name: text}, value
        if value:
            yield json.dumps(value), value


def wrong(check: Check, value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Calls that mean nothing: something required is missing, or is nothing of its kind."""
    for name in value:
        less = {key: item for key, item in value.items() if key != name}
        if not check.accepts(less):
            yield less
        senseless: tuple[JsonValue, ...] = ("no such thing!", [[]], {"nothing": {}})
        for nonsense in senseless:
            if not check.accepts({**value, name: nonsense}):
                yield {**value, name: nonsense}


def spread(body: bytes, written: WrittenRequest) -> bytes:
    """A body in a client's own layout, so that a test sees who rewrites it."""
    if not written.media_type.endswith("json"):
        return body
    return json.dumps(json.loads(body), indent=1, ensure_ascii=False).encode()


async def call_all(harvest: Harvest, port: int, tap: Any, headers: tuple[str, ...]) -> list[Call]:
    """Every operation of a service through both doors."""
    found: list[Call] = []

    async def send(
        tool: FoundTool, door: str, kind: str, value: JsonValue, sent: tuple[str, str, bytes], *more: str
    ) -> None:
        own = {header.partition(":")[0] for header in more}
        seen = await ask(port, *sent, *more, *(each for each in headers if each.partition(":")[0] not in own))
        told = tap.exchanges()
        arrived = tuple((one.request.start, one.request.target, one.request.body) for one in told)
        answers = tuple(one.answer for one in told if one.answer is not None)
        found.append(
            Call(
                tool.name, door, kind, value, sent, seen.status, seen.body.decode("utf-8", "replace"), arrived, answers
            )
        )

    for tool in harvest.tools:
        operation, check = bound(tool)
        values = right(tool, operation, check)
        for value in values:
            await send(tool, "path", "right", value, *_request(operation, value))
            await send(tool, "name", "right", value, _by_name(tool, value))
        for value, meant in damaged(check, values):
            await send(tool, "name", "damaged", meant, _by_name(tool, value))
            if operation.template.has_json and not operation.template.body_argument and isinstance(value, dict):
                await send(tool, "path", "damaged", meant, *_request(operation, value, meant))
        for value in wrong(check, values[-1]):
            await send(tool, "name", "wrong", value, _by_name(tool, value))
            with contextlib.suppress(KeyError, ValueError, TypeError):  # no client can write such a request
                await send(tool, "path", "wrong", value, *_request(operation, value))
    return found


def _by_name(tool: FoundTool, value: JsonValue) -> tuple[str, str, bytes]:
    return "POST", f"/tools/{tool.name}", dumps(value)


def _request(operation: HttpOperation, value: Any, meant: Any = None) -> tuple[Any, ...]:
    """The service's own request, and the headers that belong to it. Only the body of a damaged one is damaged."""
    written = write_request(operation, value)
    outside = write_request(operation, meant) if meant is not None else written
    path = outside.fill_path(operation.template.path)
    target = f"{path}?{outside.query}" if outside.query else path
    headers = [f"{name}: {text}" for name, text in outside.headers]
    media = [f"Content-Type: {written.media_type}"] if written.media_type else []
    return (operation.template.method, target, spread(written.body, written)), *headers, *media


# --- the runs ---------------------------------------------------------------------------------------------------------
async def run(name: str, folder: Path) -> Run:
    """Everything that is to be found out about one service."""
    with service(name, folder) as (target, description), taps({name: target}) as recorded:
        upstream = f"http://127.0.0.1:{recorded[name].port}"
        harvest = harvest_operations(description, "service.json", Choice(upstream=upstream))
        async with guarded(harvest, folder) as serving:
            port = int(serving.url.rsplit(":", 1)[1])
            calls = await call_all(harvest, port, recorded[name], CREDENTIALS[name])
            refused = [
                await ask(port, each.method, each.path.replace("{", "").replace("}", "")) for each in harvest.left_out
            ]
        said = tuple((seen.status, seen.body.decode()) for seen in refused)
        return Run(
            harvest, tuple(f"{each.method} {each.path}" for each in list_operations(description)), tuple(calls), said
        )


@pytest.fixture(scope="module", params=SERVICES)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of each service."""
    name = request.param
    needs({"trips": "py1", "ledger": "strict"}.get(name, "services"))
    if name in ("petstore", "museum") and shutil.which("node") is None:
        assert os.environ.get("CI") != "true", "no node here"
        pytest.skip("no node here: apt-get install nodejs npm")
    return asyncio.run(run(name, tmp_path_factory.mktemp(name)))


def _complains(answer: Said) -> bool:
    """Returns whether a service says that a request is none of its operations; Prism says so beside any answer."""
    return answer.start in ("400", "404", "405", "415", "422") or "sl-violations" in dict(answer.fields)


def test_no_invalid_request_reaches_the_service(ran: Run) -> None:
    assert [] == [
        (call.tool, call.door, call.kind, call.value, call.arrived, answer.start, answer.body[:300])
        for call in ran.calls
        for answer in call.answers
        if _complains(answer)
    ]


def test_right_requests_go_on_byte_for_byte(ran: Run) -> None:
    paths = [call for call in ran.of("right") if call.door == "path"]
    assert {tool.name for tool in ran.harvest.tools} == {call.tool for call in paths}
    assert [] == [(call.sent, call.arrived, call.text[:500]) for call in paths if (call.sent,) != call.arrived]


def test_right_and_damaged_calls_are_the_requests_that_were_meant(ran: Run) -> None:
    tools = {tool.name: bound(tool)[0] for tool in ran.harvest.tools}
    assert [] == [
        (call.tool, call.door, call.kind, call.value, call.arrived, call.text[:500])
        for call in ran.of("right", "damaged")
        if not _is_meant(tools[call.tool], call)
    ]


def _is_meant(operation: HttpOperation, call: Call) -> bool:
    if len(call.arrived) != 1:
        return False
    (method, target, body), ((wanted, path, meant), *_) = call.arrived[0], _request(operation, call.value)
    same = body == meant
    if operation.template.has_json and body and meant:
        same = are_equal(json.loads(body), json.loads(meant))
    return (method, target, same) == (wanted, path, True)


def test_wrong_calls_are_refused_with_a_reason_or_put_right(ran: Run) -> None:
    calls = ran.of("wrong")
    refused = [call for call in calls if not call.arrived]
    assert [] == [(call.tool, call.value, call.status) for call in refused if call.status not in (400, 404, 405, 501)]
    assert [] == [
        (call.tool, call.value, call.text) for call in refused if call.tool not in call.text and call.status == 400
    ]
    assert len(refused) > len(calls) / 2


def test_no_operation_is_left_without_a_word(ran: Run) -> None:
    report = "\n".join(describe_harvest(ran.harvest))
    judged = {tool.origin for tool in ran.harvest.tools}
    left = {each.name: each for each in ran.harvest.left_out}
    assert set(ran.operations) == judged | set(left)
    assert [] == [name for name in left if name not in report]
    assert [] == [each.why for each, (status, text) in zip(left.values(), ran.left_out, strict=True)
                  if status != 501 or each.why not in text]  # fmt: skip


# --- the third door ---------------------------------------------------------------------------------------------------
MCP_CALLS: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("get_trip", {"trip_id": 7, "verbose": True}, "GET /trips/7?verbose=true"),
    ("get_trip", {"trip_id": "7"}, "GET /trips/7"),
    ("update_trip", {"trip_id": 7, "title": "Rome", "notify": False}, "PATCH /trips/7?notify=false"),
    ("delete_trip", {"trip_id": 7}, "DELETE /trips/7"),
    ("find_airports", {"q": "xy", "kinds": ["bus", "train"]}, "GET /airports?q=xy&kinds=bus&kinds=train"),
    ("add_photo", {"title": "Sea", "photo": "UE5H"}, "POST /photos"),
    ("list_notes", {}, "GET /notes"),
    ("get_trip", {"trip_id": "seven"}, ""),
    ("find_airports", {"q": "xy", "kinds": ["plane"]}, ""),
    ("get_file", {"name": "../etc", "version": "3f2504e0-4f89-41d3-9a0c-0305e82c3301"}, ""),
]


@pytest.mark.parametrize("client", CLIENTS)
async def test_real_mcp_clients_call_the_operations(client: str, tmp_path: Path) -> None:
    needs("py1", "py2", "node")
    with service("trips", tmp_path) as (target, description), taps({"trips": target}) as recorded:
        upstream = f"http://127.0.0.1:{recorded['trips'].port}"
        harvest = harvest_operations(description, "service.json", Choice(upstream=upstream, as_mcp=True))
        async with guarded(harvest, tmp_path) as serving:
            calls = [[name, arguments] for name, arguments, _ in MCP_CALLS]
            told = await asyncio.to_thread(asked, CLIENTS[client], {"trips": f"{serving.url}/mcp"}, {"trips": calls})
        arrived = [f"{one.request.start} {one.request.target}" for one in recorded["trips"].exchanges()]

    assert sorted(tool.name for tool in harvest.tools) == sorted(told["trips"]["tools"])
    assert [not sent for _, _, sent in MCP_CALLS] == [each.get("error") for each in told["trips"]["calls"]], told
    assert [sent for _, _, sent in MCP_CALLS if sent] == arrived
    assert '{"bytes":3}' == told["trips"]["calls"][5]["text"]
