"""docs/callout.md: its service runs unchanged and does what the page says; its tables and schemas are the code's."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.config.load import load
from proxy.core.check.validation import compile_check
from proxy.core.json.jsontext import parse
from proxy.extensions.callout.callout_client import CalloutFault
from proxy.extensions.callout.callout_messages import read_callout_answer
from proxy.extensions.callout.callout_section import CalloutPoint
from proxy.server import start_serving
from tests.extensions.callout.service import FOLDER, QUESTION
from tests.ports import hold_port
from tests.serving.proxied import Proxied, code, told
from tests.serving.wire import JSON_TYPE, answer, replies, tool

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/callout.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
ENVIRON = {"MANAGER_TOKEN": "manager-token-0123456789", "CLERK_TOKEN": "clerk-token-0123456789ab"}
OK = answer("200 OK", b'{"paid": 1.50, "card": "4111"}', JSON_TYPE)


@dataclass
class Policy:
    """The service of the page, as a process."""

    port: int
    process: subprocess.Popen[bytes]


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[Policy]:
    (tmp_path / "policy.py").write_text(BLOCKS["python"], encoding="utf-8")
    (tmp_path / "policy-token").write_text("s3cret\n")
    port = hold_port()
    words = [sys.executable, str(tmp_path / "policy.py"), str(port)]
    process = subprocess.Popen(words, env={**os.environ, "POLICY_TOKEN": "s3cret"})
    try:
        yield Policy(port, process)
    finally:
        process.terminate()
        process.wait()


def write_config(folder: Path, server: int, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config of the page, with the ports of this test."""
    monkeypatch.chdir(folder)
    text = BLOCKS["yaml"].replace("127.0.0.1:9101", f"127.0.0.1:{server}").replace("9102", str(policy.port))
    (folder / "config.yaml").write_text(f"version: 1\nlisten: 127.0.0.1:0\nadmin: off\n{text}")
    return folder / "config.yaml"


async def test_the_service_of_the_page_decides_what_the_page_says(
    tmp_path: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tool(replies(OK)) as server:
        config = write_config(tmp_path, server.port, policy, monkeypatch)
        serving = await start_serving(load(config, ENVIRON))
        proxy = Proxied(serving, None)  # type: ignore[arg-type]  # its log goes to standard error

        async def pay(body: bytes, who: str) -> Any:
            return await proxy.post("/pay", body, f"Authorization: Bearer {ENVIRON[who]}")

        try:
            async with asyncio.timeout(120):
                while (await pay(b'{"amount": 1}', "CLERK_TOKEN")).status != 200:  # until the service listens
                    await asyncio.sleep(0.02)
            server.seen.clear()
            clean = await pay(b'{"amount": 7.50}', "CLERK_TOKEN")
            noted = await pay(b'{"amount": "8", "note": "n"}', "CLERK_TOKEN")
            refused = await pay(b'{"amount": 101}', "CLERK_TOKEN")
            by_manager = await pay(b'{"amount": 101}', "MANAGER_TOKEN")
        finally:
            await serving.stop(grace=0.5)
    assert [b'{"amount": 7.50}', b'{"amount":8}', b'{"amount": 101}'] == [each.body for each in server.seen]
    assert {b'{"paid": 1.50, "card": "***"}'} == {each.body for each in (clean, noted, by_manager)}
    assert (403, "CALL_NOT_ALLOWED") == code(refused)
    assert "Send at most 100, or ask a manager." in told(refused)["content"]


def test_validate_shows_what_the_service_would_be_asked(
    tmp_path: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path, 9, policy, monkeypatch)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    words = ["validate", "--config", "config.yaml", "--route", "/pay", '{"amount": "7"}']
    assert 0 == main(words)
    text = capsys.readouterr().out
    lines = [json.loads(line.removeprefix("callout: ")) for line in text.splitlines() if line.startswith("callout: ")]
    assert ["before_call", "after_answer"] == [line["event"] for line in lines]
    question = lines[0]["question"]
    assert QUESTION.accepts(question)
    assert {"amount": 7} == question["call"]["arguments"]
    assert 0 == main([*words, "--format", "json"])
    shown = json.loads(capsys.readouterr().out)
    assert lines == shown["added"]["callout"]
    schema = compile_check(parse((ROOT / "schemas/verbs/validate.schema.json").read_bytes()))
    assert schema.accepts(shown)
    assert "s3cret" not in text + json.dumps(shown)
    assert {"token": ""} == question["call"]["caller"]


def test_validate_shows_the_caller_as_the_service_would_see_it(
    tmp_path: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path, 9, policy, monkeypatch)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    words = ["validate", "--config", "config.yaml", "--route", "/pay", "--format", "json", '{"amount": 7}', "-H"]
    assert 0 == main([*words, f"Authorization: Bearer {ENVIRON['CLERK_TOKEN']}"])
    known = capsys.readouterr().out
    assert {"token": "clerk"} == json.loads(known)["added"]["callout"][0]["question"]["call"]["caller"]
    assert ENVIRON["CLERK_TOKEN"] not in known
    assert 0 == main([*words, "Authorization: Bearer nobody-knows-it-0123"])
    assert (
        "validate: note: the route refuses this token: The bearer token is not known here.\n" == capsys.readouterr().err
    )


def test_the_example_of_a_question_fits_the_schema() -> None:
    assert QUESTION.accepts(json.loads(BLOCKS["json"]))


def test_each_answer_of_the_page_fits_its_schema() -> None:
    found = re.findall(r"`(\{\"action\".*?\})`", PAGE)
    for text in found:
        points = [CalloutPoint.BEFORE] if "allow" in text or "replace" in text else [CalloutPoint.AFTER]
        for point in points if '"refuse"' not in text else CalloutPoint:
            body = text.replace("{...}", '{"a": 1}').encode()
            assert not isinstance(read_callout_answer(body, point), str), text
    assert 5 == len(found)


def test_the_table_of_failures_names_each() -> None:
    table = PAGE.split("## When a service fails")[1]
    assert sorted(CalloutFault) == sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


@pytest.mark.parametrize("name", ["question", "before_call", "after_answer"])
def test_the_published_schemas_are_those_that_the_proxy_reads(name: str) -> None:
    file = f"{name}.schema.json"
    assert (FOLDER / file).read_bytes() == (ROOT / "schemas/callout" / file).read_bytes()
