"""Taking over a changed config: all of it or nothing, and no call notices."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.model import Config
from proxy.config.watch import hash_files
from proxy.server import start_serving
from proxy.server.reload import keep_running_sections, list_restart_sections
from tests.serving.mounted import Mounted
from tests.serving.proxied import WEATHER, Proxied, code, proxied, told
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, read_message, replies, tool
from tests.steady import until

OK = answer("200 OK", b"{}", JSON_TYPE)


def config(url: str = "http://127.0.0.1:9", more: str = "", schema: str = "schemas/a.json") -> str:
    return f"""
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
reload: {{interval: 50ms}}
{more}
upstreams: {{tools: {{url: "{url}"}}}}
routes:
  - {{path: /a, upstream: tools, tool: a, schema: {schema}, repair: off}}
"""


def wants(kind: str) -> str:
    return json.dumps({"type": "object", "properties": {"x": {"type": kind}}, "required": ["x"]})


@contextlib.asynccontextmanager
async def served(path: Path) -> AsyncIterator[Proxied]:
    """The app serving a file and watching it."""
    log = io.StringIO()
    serving = await start_serving(load(path, {}), log_to=log, environ={}, watch=True)
    try:
        yield Proxied(serving, log)
    finally:
        await serving.stop(grace=0.5)


async def digest(proxy: Proxied) -> str:
    return str(told(await proxy.ask_admin("/-/config"))["digest"])


async def until_changed(proxy: Proxied, before: str) -> str:
    """The digest that is served once it is another than `before`."""
    async with asyncio.timeout(300):
        while (now := await digest(proxy)) == before:
            await asyncio.sleep(0.02)
    return now


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each finished look at the files, whoever looks."""
    made = list[None]()

    def count(paths: Iterable[Path]) -> dict[Path, str]:
        seen = hash_files(paths)
        made.append(None)
        return seen

    monkeypatch.setattr("proxy.server.reload.hash_files", count)
    return made


async def until_looked(looks: list[None]) -> None:
    """Waits until the watcher has looked at the files three times more, and has acted upon two of them."""
    before = len(looks)
    await until(lambda: len(looks) >= before + 3)


def events(proxy: Proxied, message: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, proxy.log.getvalue().splitlines()) if line["message"] == message]


async def samples(proxy: Proxied) -> dict[str, float]:
    text = (await proxy.ask_admin("/metrics")).body.decode()
    pairs = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("toolproxy_config_")]
    return {name.removeprefix("toolproxy_config_"): float(value) for name, value in pairs}


async def kinds(proxy: Proxied) -> tuple[int, int]:
    """Returns how a text and a number are answered."""
    return (await proxy.post("/a", b'{"x": "t"}')).status, (await proxy.post("/a", b'{"x": 1}')).status


# --- a mounted ConfigMap ----------------------------------------------------------------------------------------------
async def test_every_update_of_a_configmap_takes_effect_several_in_a_row(tmp_path: Path) -> None:
    async with tool(replies(OK)) as server:
        text = config(server.url)
        mounted = Mounted(tmp_path, {"config.yaml": text, "schemas/a.json": wants("string")})
        async with served(tmp_path / "config.yaml") as proxy:
            seen, now = [await kinds(proxy)], await digest(proxy)
            for kind in ("integer", "string", "integer"):
                mounted.update({"config.yaml": text, "schemas/a.json": wants(kind)})
                now = await until_changed(proxy, now)
                seen.append(await kinds(proxy))
            metrics = await samples(proxy)
            files = load(tmp_path / "config.yaml", {}, config_only=True).files_digest

    assert [(200, 400), (400, 200), (200, 400), (400, 200)] == seen
    assert (3.0, 1.0) == (metrics['reloads_total{result="success"}'], metrics["last_reload_successful"])
    assert metrics["last_reload_success_timestamp_seconds"] > 1.7e9
    assert [1.0] == [value for name, value in metrics.items() if name == f'info{{files_hash="{files}",hash="{now}"}}']


async def test_updates_faster_than_the_looks_end_in_the_last_one(tmp_path: Path) -> None:
    async with tool(replies(OK)) as server:
        text = config(server.url)
        mounted = Mounted(tmp_path, {"config.yaml": text, "schemas/a.json": wants("string")})
        async with served(tmp_path / "config.yaml") as proxy:
            for kind in ("integer", "boolean", "array", "integer"):
                mounted.update({"config.yaml": text, "schemas/a.json": wants(kind)})
            async with asyncio.timeout(300):
                while (answers := await kinds(proxy)) != (400, 200):
                    await asyncio.sleep(0.02)

    assert (400, 200) == answers


async def test_a_swap_with_the_same_bytes_changes_nothing(tmp_path: Path, looks: list[None]) -> None:
    files = {"config.yaml": config(), "schemas/a.json": wants("string")}
    mounted = Mounted(tmp_path, files)
    async with served(tmp_path / "config.yaml") as proxy:
        before = proxy.serving.handler.snapshot
        mounted.update(files)
        await until_looked(looks)
        asked = told(await proxy.ask_admin("/-/reload", method="POST"))

        assert ("unchanged", before.digest) == (asked["result"], asked["digest"])
        assert before is proxy.serving.handler.snapshot


# --- files with mistakes ----------------------------------------------------------------------------------------------
async def test_a_broken_file_keeps_the_last_good_config_stays_ready_and_names_line_and_route(
    tmp_path: Path, looks: list[None]
) -> None:
    async with tool(replies(OK)) as server:
        text = config(server.url)
        mounted = Mounted(tmp_path, {"config.yaml": text, "schemas/a.json": wants("string")})
        async with served(tmp_path / "config.yaml") as proxy:
            good = await digest(proxy)
            broken = text.replace("repair: off", "repare: off")
            mounted.update({"config.yaml": broken, "schemas/a.json": wants("integer")})
            await until(lambda: events(proxy, "config not taken over"))
            await until_looked(looks)
            (event, *more), metrics = events(proxy, "config not taken over"), await samples(proxy)
            ready, answers = await proxy.ask_admin("/readyz"), await kinds(proxy)
            shown = told(await proxy.ask_admin("/-/config"))
            asked = await proxy.ask_admin("/-/reload", method="POST")
            mounted.update({"config.yaml": text, "schemas/a.json": wants("integer")})
            await until_changed(proxy, good)
            mended, after = await kinds(proxy), await samples(proxy)

    place = f"{tmp_path}/config.yaml:9:66  route '/a'  unknown key 'repare'  (did you mean 'repair'?)"
    assert (place, [], "error") == (event["mistake"], more, event["level"])
    assert (200, (200, 400), good, [place]) == (ready.status, answers, shown["digest"], shown["mistakes"])
    assert (422, "failure", [place]) == (asked.status, told(asked)["result"], told(asked)["mistakes"])
    assert (0.0, 1.0) == (metrics["last_reload_successful"], after["last_reload_successful"])
    assert (400, 200) == mended


async def test_a_reload_rejects_a_schema_that_guards_nothing_and_notes_strange_keywords(
    tmp_path: Path,
) -> None:
    strange = json.dumps({**json.loads(wants("integer")), "ui": "map"})
    mounted = Mounted(tmp_path, {"config.yaml": config(), "schemas/a.json": wants("string")})
    async with served(tmp_path / "config.yaml") as proxy:
        good = await digest(proxy)
        mounted.update({"config.yaml": config(), "schemas/a.json": '{"x": {"type": "string", "required": true}}'})
        await until(lambda: events(proxy, "config not taken over"))
        assert good == await digest(proxy)
        mounted.update({"config.yaml": config(), "schemas/a.json": strange})
        await until_changed(proxy, good)
        await until(lambda: events(proxy, "config note"))

    (mistake,) = [event["mistake"] for event in events(proxy, "config not taken over")]
    assert "schemas/a.json:1:2" in mistake
    assert mistake.endswith(
        "guards nothing: a property belongs under `properties`  "
        '(write {"type":"object","properties":{"x":{"type":"string"}},"required":["x"]})'
    )
    assert [
        "tool 'a': `/ui`: unknown keyword 'ui', which JSON Schema ignores  (call it `x-...` if it is a remark of yours)"
    ] == [event["note"] for event in events(proxy, "config note")]


async def test_logs_that_a_corrected_config_is_valid_again(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, {"config.yaml": config(), "schemas/a.json": wants("string")})
    async with served(tmp_path / "config.yaml") as proxy:
        good = await digest(proxy)
        mounted.update({"config.yaml": "version: 1\nroutes: [", "schemas/a.json": wants("string")})
        await until(lambda: events(proxy, "config not taken over"))
        mounted.update({"config.yaml": config(), "schemas/a.json": wants("string")})
        await until(lambda: events(proxy, "config valid again"))

    assert [good] == [event["digest"] for event in events(proxy, "config valid again")]
    assert [] == events(proxy, "config taken over")


async def test_a_removed_schema_is_a_mistake_until_it_is_back(tmp_path: Path) -> None:
    files = {"config.yaml": config(), "schemas/a.json": wants("string")}
    mounted = Mounted(tmp_path, files)
    async with served(tmp_path / "config.yaml") as proxy:
        good = await digest(proxy)
        mounted.update({"config.yaml": config() + "\n", "schemas/b.json": "{}"})
        await until(lambda: events(proxy, "config not taken over"))
        assert good == await digest(proxy)
        mounted.update({"config.yaml": config() + "\n", "schemas/a.json": wants("string")})
        now = await until_changed(proxy, good)
        assert 1.0 == (await samples(proxy))["last_reload_successful"]

    assert now != good
    assert "schemas/a.json" in events(proxy, "config not taken over")[0]["mistake"]


async def test_going_back_to_what_is_served_ends_the_alarm(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/a.json").write_text(wants("string"))
    path.write_text(config())
    async with served(path) as proxy:
        path.write_text("version: [")
        failed = await proxy.ask_admin("/-/reload", method="POST")
        path.write_text(config())
        back = await proxy.ask_admin("/-/reload", method="POST")
        metrics = await samples(proxy)

    assert [(422, "failure"), (200, "unchanged")] == [(seen.status, told(seen)["result"]) for seen in (failed, back)]
    assert 1.0 == metrics["last_reload_successful"]


# --- what a reload may change -----------------------------------------------------------------------------------------
async def test_reports_sections_that_need_a_restart_and_applies_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config(schema="{type: object}"))
    async with served(path) as proxy:
        text = config(more="state: {max_keys: 7}\ndrain: 1s", schema="{type: array}")
        path.write_text(text.replace("listen: 127.0.0.1:0\n", "listen: 127.0.0.1:9099\n"))
        asked = told(await proxy.ask_admin("/-/reload", method="POST"))
        refused = await proxy.post("/a", b"{}")
        metrics, served_now = await samples(proxy), proxy.serving.config

    assert ("success", ["listen", "state"]) == (asked["result"], asked["restart_needed"])
    assert (400, 2.0) == (refused.status, metrics["restart_needed"])
    assert (0, 100_000, 1.0) == (served_now.listen.port, served_now.state.max_keys, served_now.drain)
    assert ["listen", "state"] == [event["section"] for event in events(proxy, "config needs a restart")]


def test_a_section_that_is_not_known_to_be_live_needs_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"

    def loaded(more: str) -> Any:
        path.write_text(config(more=more, schema="{type: object}"))
        return load(path, {}).config

    plain = loaded("")
    assert () == list_restart_sections(
        plain, loaded("telemetry: {log: {level: debug}}\ndrain: 3s\ndefaults: {mode: report}")
    )
    assert ("telemetry",) == list_restart_sections(plain, loaded("telemetry: {log: {format: json}}"))
    assert ("workers",) == list_restart_sections(plain, replace(plain, workers=2))


async def test_a_changed_log_level_takes_effect(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config(schema="{type: object}"))
    async with served(path) as proxy:
        path.write_text(config(schema="{type: object}", more="telemetry: {log: {level: error}}"))
        await proxy.ask_admin("/-/reload", method="POST")
        assert "error" == proxy.serving.log.level


async def test_pools_of_unchanged_upstreams_keep_their_connections(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    async with tool(replies(OK)) as server:
        path.write_text(config(server.url, schema="{type: object}"))
        async with served(path) as proxy:
            await proxy.post("/a", b"{}")
            path.write_text(config(server.url, schema="{type: object, maxProperties: 9}"))
            await proxy.ask_admin("/-/reload", method="POST")
            await proxy.post("/a", b"{}")

    assert (2, 1) == (len(server.seen), server.connections)


async def test_a_removed_upstream_is_closed_after_its_last_call(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await go_on.wait()
        writer.write(answer("200 OK", b'"old"', JSON_TYPE))
        await writer.drain()

    path = tmp_path / "config.yaml"
    async with tool(slow) as old, tool(replies(answer("200 OK", b'"new"', JSON_TYPE))) as new:
        path.write_text(config(old.url, schema="{type: object}"))
        async with served(path) as proxy:
            under_way = asyncio.create_task(proxy.post("/a", b"{}"))
            await old.arrived.wait()
            path.write_text(config(new.url, schema="{type: object}"))
            await proxy.ask_admin("/-/reload", method="POST")
            later = await proxy.post("/a", b"{}")
            assert not old.gone.is_set()
            go_on.set()
            first = await under_way
            async with asyncio.timeout(300):
                await old.gone.wait()

    assert (b'"old"', b'"new"') == (first.body, later.body)


# --- under load -------------------------------------------------------------------------------------------------------
@pytest.mark.large
async def test_a_reload_under_load_fails_and_mixes_no_call(tmp_path: Path) -> None:
    """Each version has its own schema and its own upstream: a call judged by one and sent to the other would show."""

    def says(version: str) -> Any:
        async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
            await asyncio.sleep(0.002)
            writer.write(
                answer("200 OK", json.dumps({"by": version, "got": json.loads(seen.body)}).encode(), JSON_TYPE)
            )

        return script

    stop, seen = asyncio.Event(), []

    async def client(port: int, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not stop.is_set():
            value = ("1" if number % 2 else '"t"').encode()
            writer.write(post("/a", b'{"x": %s}' % value, f"X-Conversation-Id: {number}"))
            seen.append((number % 2, await read_message(reader)))
        writer.close()

    async with tool(says("strings")) as strings, tool(says("integers")) as integers:
        versions = [(config(strings.url), wants("string")), (config(integers.url), wants("integer"))]
        files = [{"config.yaml": text, "schemas/a.json": schema} for text, schema in versions]
        mounted = Mounted(tmp_path, files[0])
        async with served(tmp_path / "config.yaml") as proxy:
            clients = [asyncio.create_task(client(proxy.port, number)) for number in range(8)]
            for turn in range(1, 13):
                before = await digest(proxy)
                mounted.update(files[turn % 2])
                await until_changed(proxy, before)
                answered = len(seen)
                await until(lambda answered=answered: len(seen) > answered + 20)  # type: ignore[misc]
            stop.set()
            await asyncio.gather(*clients)
            metrics = await samples(proxy)

    assert 12.0 == metrics['reloads_total{result="success"}']
    assert {200, 400} == {answered.status for _, answered in seen}
    assert all("strings" == told(answered)["by"] for is_int, answered in seen if answered.status == 200 and not is_int)
    assert all("integers" == told(answered)["by"] for is_int, answered in seen if answered.status == 200 and is_int)
    refused = [code(answered) for _, answered in seen if answered.status != 200]
    assert {(400, "INVALID_ARGUMENTS")} >= {failure for failure in refused if failure[1] != "ATTEMPTS_EXHAUSTED"}
    assert len(seen) > 240


async def test_reload_needs_post(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config(schema="{type: object}"))
    async with served(path) as proxy:
        seen = await proxy.ask_admin("/-/reload")
        assert (405, "POST") == (seen.status, seen.header("allow"))
        assert 200 == (await exchange(proxy.admin, b"POST /-/reload HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).status


async def test_a_removed_config_fails_the_reload_and_serving_continues(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config(schema="{type: object}"))
    async with served(path) as proxy:
        path.unlink()
        asked = await proxy.ask_admin("/-/reload", method="POST")
        again = await proxy.ask_admin("/-/reload", method="POST")
        assert 502 == (await proxy.post("/a", b"{}")).status

    assert (422, 422) == (asked.status, again.status)
    assert [f"{path}:1:1  cannot read the config: No such file or directory"] == told(again)["mistakes"]


@pytest.mark.parametrize("interval", ["10ms", "0"])
def test_looking_all_the_time_is_a_mistake(tmp_path: Path, interval: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config(schema="{type: object}").replace("50ms", interval))
    with pytest.raises(Exception, match="an interval this short"):
        load(path, {})


async def test_counts_a_rotated_token_at_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    admin = f"{{listen: 127.0.0.1:0, token: '${{file:{token}}}'}}"

    async with proxied(WEATHER, admin=admin) as proxy:

        async def asks(secret: str) -> int:
            return (await proxy.ask_admin("/-/config", f"Authorization: Bearer {secret}")).status

        first = [await asks("0123456789abcdef"), await asks("fedcba9876543210")]
        token.write_text("fedcba9876543210\n")
        second = [await asks("0123456789abcdef"), await asks("fedcba9876543210")]
        token.unlink()
        gone = [await asks(secret) for secret in ("fedcba9876543210", "0123456789abcdef", "")]

    assert ([200, 401], [401, 200]) == (first, second)
    assert [401, 200, 401] == gone, "without its file the token is the one of the start"


def test_keeps_the_token_whose_reference_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"

    def loaded(token: str, secret: str) -> Config:
        (tmp_path / "token").write_text(secret)
        routes = "routes: {/a: {upstream: none, tool: a, schema: {}}}"
        file.write_text(f"version: 1\nadmin: {{token: '{token}'}}\n{routes}")
        return load(file, {"TOKEN": "another-long-token"}).config

    before = loaded("${file:token}", "0123456789abcdef")
    assert () == list_restart_sections(before, loaded("${file:token}", "fedcba9876543210"))
    other = loaded("${TOKEN}", "fedcba9876543210")
    assert ("admin",) == list_restart_sections(before, other)
    assert before.admin == keep_running_sections(before, other).admin
