"""Recorded calls: written with substitutes of values that keep the verdict, replayed to their outcome, compared over
two configs."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import stat
from collections import defaultdict
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.__main__ import main
from proxy.adapters.base import CallShape
from proxy.config.load import load
from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.jsontext import dumps
from proxy.extensions.recording.comparing import compare_line, compare_sent
from proxy.extensions.recording.line import RECORD_FIELDS, differs, judge_sent, read_line, write_line
from proxy.extensions.recording.recorder import Recorder, RecordFile
from proxy.server import start_serving
from tests.corpora.calls import check_of, rows
from tests.serving.proxied import Proxied, proxied, told
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
PLANTED = "planted plain value"
COLLECTED = Path(__file__).parents[2] / "data"
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "at": {"type": "string", "format": "date"},
        "kind": {"enum": ["tea", "coffee"]},
        "count": {"type": "integer"},
        "secret": {"type": "string", "writeOnly": True},
    },
    "required": ["text"],
    "additionalProperties": False,
}
ROUTES = f"  - {{path: /a, upstream: tools, tool: order, schema: {json.dumps(SCHEMA)}}}\n"
SHAPE = CallShape(tool="order")


def policy(schema: Any = SCHEMA) -> ToolPolicy:
    return ToolPolicy("order", compile_check(schema), "f")


def line(arguments: Any, *, whole: bool = False, longest: int = 10_000) -> dict[str, Any]:
    """The recorded line of a call with these arguments."""
    sent = arguments if isinstance(arguments, bytes) else dumps(arguments)
    told = {"route": "/a", "tool": "order"}
    found: dict[str, Any] = json.loads(write_line(told, sent, SHAPE, policy(), whole=whole, longest=longest))
    return found


def test_a_standin_keeps_length_punctuation_and_class_and_what_decides_stays_readable() -> None:
    found = line({"text": "Two cups, please 2", "kind": "tea", "at": "2026-12-01"})
    assert {"text": "Xxx xxxx, xxxxxx 1", "kind": "tea", "at": "1111-11-11"} == json.loads(found["sent"])
    assert (["/at", "/text"], {"decision": "forward", "repairs": [], "errors": []}) == (found["masked"], found["fate"])


def test_a_refused_call_keeps_its_errors_and_no_text_that_needs_not_be_read() -> None:
    found = line({"text": PLANTED, "at": "the day after " + PLANTED})
    assert [["VAL-010", "/at"]] == found["fate"]["errors"]
    assert PLANTED not in json.dumps(found)


def test_whole_lines_hold_the_arguments_unchanged_and_long_ones_hold_none() -> None:
    sent = b'{ "text":  "tea" , "count": "3" }'
    assert sent.decode() == line(sent, whole=True)["sent"]
    assert (True, False) == ((lost := line(sent, longest=5)).get("lost"), "sent" in lost)


TEXTS = st.text(alphabet='ab1- "\\{}é', max_size=12)
VALUES = st.recursive(
    TEXTS | st.integers(-5, 5) | st.booleans() | st.none() | st.sampled_from(["tea", "2026-12-01", "7", '{"a": "b"}']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["text", "at", "kind", "count", "other"]), VALUES, max_size=5))
def test_acceptance_17_each_recorded_line_replays_to_its_fate(arguments: dict[str, Any]) -> None:
    written = write_line({"route": "/a", "tool": "order"}, dumps(arguments), SHAPE, policy(), whole=False, longest=9999)
    found = read_line(written)
    assert not isinstance(found, str)
    if found.sent is not None:
        assert not differs(found.fate, judge_sent(found.sent, SHAPE, policy()))


@pytest.mark.parametrize(
    "name", ["real-failures/cases.jsonl", "model_calls/invalid_calls.jsonl.gz", "bfcl/calls.jsonl.gz"]
)
def test_acceptance_17_each_recorded_line_of_the_collected_calls_replays_to_its_fate(name: str) -> None:
    recorded = 0
    for row in islice(rows(COLLECTED / name), 120):
        raw = row.get("sent", row.get("raw_arguments", row.get("arguments")))
        sent = raw.encode() if isinstance(raw, str) else dumps(raw)
        collected = ToolPolicy("order", check_of(row.get("schema", row.get("json_schema"))), "f")
        found = read_line(
            write_line({"route": "/a", "tool": "order"}, sent, SHAPE, collected, whole=False, longest=9999)
        )
        assert not isinstance(found, str)
        if found.sent is not None:
            recorded += 1
            assert not differs(found.fate, judge_sent(found.sent, SHAPE, collected)), sent
    assert recorded >= 30


# --- the file ---------------------------------------------------------------------------------------------------------
def counted(file: RecordFile, counts: dict[tuple[str, ...], float]) -> dict[str, int]:
    file.close(within=30)
    return {result[0]: int(number) for result, number in counts.items() if number}


def test_acceptance_17_a_full_file_is_packed_and_the_oldest_goes(tmp_path: Path) -> None:
    counts: dict[tuple[str, ...], float] = defaultdict(float)
    file = RecordFile(tmp_path / "calls.jsonl", 100, 2, counts)
    for number in range(20):
        file.add(lambda number=number: b"%039d\n" % number, 40)  # type: ignore[misc]
    assert {"written": 20} == counted(file, counts)
    assert ["calls.jsonl", "calls.jsonl.1.gz", "calls.jsonl.2.gz"] == sorted(path.name for path in tmp_path.iterdir())
    kept = [gzip.decompress((tmp_path / f"calls.jsonl.{number}.gz").read_bytes()) for number in (2, 1)]
    kept.append((tmp_path / "calls.jsonl").read_bytes())
    assert list(range(14, 20)) == [int(row) for row in b"".join(kept).split()]
    assert {stat.S_IRUSR | stat.S_IWUSR} == {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}


@pytest.mark.parametrize("broken", ["folder", "link", "device"])
def test_acceptance_17_a_file_that_cannot_be_written_costs_lines_and_is_counted(tmp_path: Path, broken: str) -> None:
    path = {"folder": tmp_path / "none" / "x", "link": tmp_path / "link", "device": Path("/dev/full")}[broken]
    if broken == "link":
        path.symlink_to(tmp_path / "elsewhere")
    counts: dict[tuple[str, ...], float] = defaultdict(float)
    file = RecordFile(path, 1000, 1, counts)
    file.add(lambda: b"x\n", 2)
    assert {"failed": 1} == counted(file, counts)
    assert not (tmp_path / "elsewhere").exists()


async def test_a_running_proxy_records_and_its_lines_replay(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    calls = tmp_path / "calls.jsonl"
    record = f"{{file: {calls}, sample: {{delivered: 1}}}}"
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url, record=record) as proxy:
        for arguments in ({"text": PLANTED}, {"text": "tea", "count": "3"}, {"text": "tea", "at": "soon"}):
            await proxy.post("/a", json.dumps(arguments).encode())
        upstream = server.url
        metrics = await _metrics_with(proxy, b'toolproxy_recorded_total{result="written"} 3.0')
    config = tmp_path / "c.yaml"
    config.write_text(f'version: 1\nupstreams: {{tools: {{url: "{upstream}"}}}}\nroutes:\n{ROUTES}')

    lines = [json.loads(row) for row in calls.read_bytes().splitlines()]
    assert [("delivered", 0), ("repaired", 0), ("refused", 1)] == [(row["outcome"], row["attempt"]) for row in lines]
    about = {"v", "at", *RECORD_FIELDS, "config", "fate", "sent", "masked"}
    assert [about] * 3 == [set(row) for row in lines]
    assert [("/a", "order", 12)] * 3 == [(row["route"], row["tool"], len(row["config"])) for row in lines]
    assert PLANTED.encode() not in calls.read_bytes() + metrics
    assert 0 == await asyncio.to_thread(main, ["replay", "--config", str(config), str(calls)])
    told = capfdbinary.readouterr()
    rows = [json.loads(row) for row in told.out.splitlines()]
    assert ["forward", "forward", "reject"] == [row["decision"] for row in rows]
    assert rows[2]["content"].startswith("Validation failed for tool 'order' (attempt 1/3):")
    assert b"3 calls" in told.err


async def test_records_only_between_the_reloads_that_switch_it_on_and_off(
    tmp_path: Path,
) -> None:
    config, calls = tmp_path / "c.yaml", tmp_path / "calls.jsonl"
    record = f"record: {{file: {calls}, sample: {{refused: 1}}}}\n"
    usual = f"version: 1\nlisten: 127.0.0.1:0\nadmin: off\nupstreams: {{tools: {{url: 'http://127.0.0.1:9'}}}}\nroutes:\n{ROUTES}"
    config.write_text(usual)
    serving = await start_serving(load(config, {}), log_to=io.StringIO())
    port, asked = int(serving.url.rsplit(":", 1)[1]), list[bool]()
    try:
        for text in (usual, usual + record, usual):
            config.write_text(text)
            await serving.reloader.reload()
            asked.append(any(isinstance(each, Recorder) for each in serving.handler.observers))
            await exchange(port, post("/a", b'{"text": 1, "count": "x"}'))
    finally:
        await serving.stop(grace=0.5)
    assert [False, True, False] == asked
    assert ["refused"] == [json.loads(row)["outcome"] for row in calls.read_bytes().splitlines()]


async def _metrics_with(proxy: Any, wanted: bytes) -> bytes:
    async with asyncio.timeout(300):
        while wanted not in (found := (await proxy.ask_admin("/metrics")).body):
            await asyncio.sleep(0.05)
    return bytes(found)


# --- diff -------------------------------------------------------------------------------------------------------------
def configs(tmp_path: Path, new: Any) -> list[str]:
    for name, schema in (("old", SCHEMA), ("new", new)):
        route = f"  - {{path: /a, upstream: none, tool: order, schema: {json.dumps(schema)}}}\n"
        (tmp_path / f"{name}.yaml").write_text(f"version: 1\nroutes:\n{route}")
    calls = [{"text": "tea"}, {"text": "tea", "at": "soon"}, {"text": "tea", "kind": "coffee"}, {"count": "1"}]
    rows = [write_line({"route": "/a", "tool": "order"}, dumps(each), SHAPE, policy(), whole=False, longest=9999)
            for each in calls]  # fmt: skip
    (tmp_path / "calls.jsonl").write_bytes(b"".join(rows))
    return [str(tmp_path / name) for name in ("old.yaml", "new.yaml", "calls.jsonl")]


def test_acceptance_17_a_config_equals_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["diff", *configs(tmp_path, SCHEMA), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (4, 4, []) == (found["calls"], found["same"], found["changes"])


def test_several_processes_say_what_one_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = json.loads(json.dumps(SCHEMA))
    new["properties"]["kind"]["enum"] = ["tea"]
    words = [*configs(tmp_path, new), "--format", "json"]
    calls = tmp_path / "calls.jsonl"
    calls.write_bytes(calls.read_bytes() * 150)
    found = []
    for jobs in ("1", "2"):
        assert 1 == main(["diff", *words, "--jobs", jobs])
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert (600, 150, 3) == (found[0]["calls"], found[0]["newly_refused"], found[0]["changes"][0]["line"])


def test_lists_what_a_new_config_rejects_and_accepts_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = json.loads(json.dumps(SCHEMA))
    new["properties"]["kind"]["enum"] = ["tea"]
    new["required"] = []
    words = configs(tmp_path, new)
    assert 1 == main(["diff", *words])
    told = capsys.readouterr()
    assert "4 calls   same 2   newly accepted 1   newly refused 1   other arguments 0" in told.out
    assert "order  /kind  VAL-008  1 x  forward -> refuse  e.g. line 3" in told.out
    assert "exit 1: 1 newly refused\n" == told.err
    assert 0 == main(["diff", *words, "--allow", "25%", "--format", "markdown"])
    assert "| order | `/kind` | VAL-008 | 1 | forward → refuse |" in capsys.readouterr().out


def test_diff_names_each_new_error_and_no_repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = json.loads(json.dumps(SCHEMA))
    new["properties"]["kind"] = {"type": "integer"}
    new["properties"]["text"] = {"type": "boolean"}
    words = configs(tmp_path, new)
    sent = dumps({"text": "tea", "kind": "tea", "count": "1"})
    line = write_line({"route": "/a", "tool": "order"}, sent, SHAPE, policy(), whole=True, longest=9999)
    (tmp_path / "calls.jsonl").write_bytes(line)
    assert 1 == main(["diff", *words])
    assert [
        "order  /kind  VAL-002  1 x  forward -> refuse  e.g. line 1",
        "order  /text  VAL-002  1 x  forward -> refuse  e.g. line 1",
    ] == capsys.readouterr().out.splitlines()[1:]


def test_cannot_tell_the_verdict_if_a_substitute_keeps_too_little(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = json.loads(json.dumps(SCHEMA))
    new["properties"]["text"]["enum"] = ["tea", "milk"]
    assert 0 == main(["diff", *configs(tmp_path, new), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (3, 0, 0) == (found["cannot_tell"], found["newly_refused"], found["newly_accepted"])


def fits(verb: str, line: str) -> Any:
    """The JSON object in a line, held against the published schema of a verb's output."""
    found = json.loads(line)
    schema = json.loads((Path(__file__).parents[3] / f"schemas/verbs/{verb}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(found)
    return found


def test_json_of_diff_and_replay_fits_the_published_schemas(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    new = json.loads(json.dumps(SCHEMA))
    new["properties"]["kind"]["enum"] = ["tea"]
    old, changed, calls = configs(tmp_path, new)
    assert 1 == main(["diff", old, changed, calls, "--format", "json"])
    assert 1 == fits("diff", capfd.readouterr().out)["newly_refused"]
    assert 1 == main(["replay", "--config", changed, calls])
    rows = [fits("replay", line) for line in capfd.readouterr().out.splitlines()]
    assert [1, 2, 3, 4] == [row["line"] for row in rows]
    assert 1 == main(["replay", "--config", changed, calls, "--format", "text"])
    assert (
        "line 3  order  reject  VAL-008 at /kind  differs from the recorded verdict"
        == capfd.readouterr().out.splitlines()[2]
    )


@pytest.mark.parametrize(
    ("calls", "message"),
    [("missing.jsonl", "No such file or directory"), ("new.yaml", "is not recorded calls throughout")],
)
def test_diff_says_in_json_what_cannot_be_used(
    calls: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old, new, _ = configs(tmp_path, SCHEMA)
    assert 2 == main(["diff", old, new, str(tmp_path / calls), "--format", "json"])
    assert message in fits("diff", capfd.readouterr().out)["error"]["message"]


# --- compared in the console ------------------------------------------------------------------------------------------
async def try_schema(proxy: Proxied, schema: Any) -> Seen:
    body = json.dumps({"route": "/a", "tool": "order", "schema": schema, "over": "recorded"}).encode()
    head = f"POST /-/trial HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return await exchange(proxy.admin, head.encode() + body)


async def test_an_edited_schema_is_compared_over_the_calls_that_were_recorded_last(tmp_path: Path) -> None:
    calls = tmp_path / "calls.jsonl"
    record = f"{{file: {calls}, max_size: 4KiB, sample: {{delivered: 1}}}}"
    edited = json.loads(json.dumps(SCHEMA))
    del edited["properties"]["at"]["format"]
    edited["properties"]["kind"]["enum"] = ["tea"]
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url, record=record) as proxy:
        for number in range(12):
            for arguments in ({"text": "tea", "kind": "coffee"}, {"text": "tea", "at": f"in {number} h"}):
                await proxy.post("/a", json.dumps(arguments).encode(), f"X-Conversation-Id: c{number}")
        await _metrics_with(proxy, b'toolproxy_recorded_total{result="written"} 24.0')
        found = told(await try_schema(proxy, edited))
        wrong = await try_schema(proxy, {"type": "nonsense"})
        reached = len(server.seen)

    assert 12 == reached
    assert (24, 12, 12, 0) == tuple(found[name] for name in ("calls", "newly_refused", "newly_accepted", "cannot_tell"))
    assert [("/at", "VAL-010", "refuse", "forward"), ("/kind", "VAL-008", "forward", "refuse")] == sorted(
        (change["path"], change["code"], change["before"], change["after"]) for change in found["changes"]
    )
    assert (400, True) == (wrong.status, "/type" in told(wrong)["error"])
    assert len(list(tmp_path.iterdir())) > 1


async def test_without_a_record_the_console_says_what_to_switch_on() -> None:
    async with proxied(ROUTES) as proxy:
        found = await try_schema(proxy, SCHEMA)
    assert (400, True) == (found.status, "`record: {file: ...}`" in told(found)["error"])


def test_cannot_tell_the_verdict_if_a_schema_wants_a_number_for_recorded_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = json.loads(json.dumps(SCHEMA))
    new["properties"]["text"]["type"] = "number"
    assert 0 == main(["diff", *configs(tmp_path, new), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (3, 0) == (found["cannot_tell"], found["newly_refused"])


ASKED = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "boolean", ["string", "null"], "array"]),
        "enum": st.lists(st.sampled_from(["tea", "Coffee", "12"]), min_size=1, unique=True),
        "format": st.sampled_from(["date", "date-time", "email"]),
        "pattern": st.sampled_from(["^[a-z]+$", "^[0-9]+$", "tea"]),
        "minLength": st.integers(0, 5),
        "maxLength": st.integers(2, 12),
    },
)
SAID = st.sampled_from(
    [
        "tea",
        "Tea",
        "coffee",
        "12",
        "1e5",
        "-3",
        "true",
        "yes",
        "null",
        "[1]",
        "2026-12-01",
        "01.12.2026",
        "a@b.example",
        "",
    ]
)


@given(ASKED, ASKED, ASKED, SAID)
def test_a_comparison_over_substituted_values_is_true_of_the_call_itself(
    recorded: Any, old: Any, new: Any, said: str
) -> None:
    policies = [
        replace(policy({"properties": {"x": each}}), schema_id=json.dumps(each)) for each in (recorded, old, new)
    ]
    sent = dumps({"x": said})
    told = {"route": "/a", "tool": "order", "schema_id": policies[0].schema_id}
    line = read_line(write_line(told, sent, SHAPE, policies[0], whole=False, longest=9999))
    assert not isinstance(line, str)
    key = ("/a", "order")
    found = compare_line(line, *({key: (SHAPE, each)} for each in policies[1:]))
    if found.change != "cannot_tell":
        assert compare_sent(sent, SHAPE, *policies[1:]).change == found.change


@pytest.mark.parametrize("words", [["--allow", "some"], ["--fail-on", "worse"]])
def test_a_wrong_option_is_explained(tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["diff", *configs(tmp_path, SCHEMA), *words])
    assert "newly-refused" in capsys.readouterr().err


async def test_a_call_whose_secret_is_not_kept_tells_nothing_of_an_edited_schema() -> None:
    pin = {"type": "string", "writeOnly": True, "pattern": "^[0-9]{4}$"}
    schema = {"type": "object", "properties": {"pin": pin}}
    routes = f"  - {{path: /a, upstream: tools, tool: order, schema: {json.dumps(schema)}}}\n"
    admin = "{listen: 127.0.0.1:0, token: a-token-of-the-operator, values: full}"
    edited = {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}}
    reply = replies(answer("200 OK", b"{}", JSON_TYPE))
    async with tool(reply) as server, proxied(routes, server.url, admin=admin) as proxy:
        assert 200 == (await proxy.post("/a", b'{"pin": "1234"}')).status
        body = json.dumps({"route": "/a", "tool": "order", "schema": edited, "over": "kept"}).encode()
        head = "POST /-/trial HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer a-token-of-the-operator\r\n"
        found = told(await exchange(proxy.admin, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body))

    assert (1, 1, 0) == (found["calls"], found["cannot_tell"], found["newly_accepted"])
