"""With `admin.values: off` no page of the operator's port shows a value, in whatever form a tool repeats it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.extensions.console.dry_run import make_dry_services
from proxy.interfaces import Services
from tests.extensions.console.test_kept_calls import OK, REMINDERS
from tests.serving.proxied import proxied
from tests.serving.wire import JSON_TYPE, answer, exchange, replies, tool

WORDS = "Jane O'Doe & <SSN> 078-05-1120 zebra "
FORMS: dict[str, Callable[[str], str]] = {
    "as it came": str,
    "upper-cased": str.upper,
    "cut": lambda text: text[: len(text) * 2 // 3] + "...",
    "escaped": html.escape,
    "split": lambda text: ", ".join(text.split()),
    "in quotes of JSON": json.dumps,
    "backwards": lambda text: text[::-1],
    "as a name": lambda text: "_".join(re.findall("[A-Za-z0-9]+", text))[:60],
    "one word": lambda text: max(re.findall("[A-Za-z0-9]+", text), key=len),
}
DIALECTS: list[tuple[str, Callable[[str], Any]]] = [
    ("422 Unprocessable Entity", lambda words: {"error": f"cannot use {words}"}),
    ("400 Bad Request", lambda words: {"detail": [{"loc": ["body", "text"], "msg": f"bad: {words}", "type": "value"}]}),
    (
        "400 Bad Request",
        lambda words: {"message": words, "errors": [{"path": "text", "message": words}], "hint": words},
    ),
    ("500 Internal Server Error", lambda words: words),
    ("422 Unprocessable Entity", lambda words: {"detail": [{"loc": ["body", words], "msg": words, "type": words}]}),
    ("400 Bad Request", lambda words: {"errors": {words: [words], "text": [words]}}),
    ("400 Bad Request", lambda words: {"errors": [{"path": words, "message": words, "code": words}]}),
    ("400 Bad Request", lambda words: {"type": words, "title": words, "detail": words, "instance": words}),
    (
        "200 OK",
        lambda words: {"success": False, "error": {"code": words, "message": words, "category": "INPUT_ERROR"}},
    ),
    ("429 Too Many Requests", lambda words: {"error": {"code": "X", "message": words, "details": {"hint": words}}}),
]

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def list_traces(value: str) -> set[str]:
    """Returns what of a value would give it away: the five letters at either end of any of its words, either way
    round."""
    words = {word.lower() for word in value.replace("'", " ").split() if len(word) > 4}
    ends = {end for word in words for end in (word[:5], word[-5:])}
    return ends | {end[::-1] for end in ends}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [10, 200, 440, 1_000, 10_000])
async def test_no_form_of_a_value_that_a_tool_repeats_is_shown(form: str, length: int) -> None:
    value = (WORDS * (length // len(WORDS) + 1))[:length]
    said = [answer(status, json.dumps(make(FORMS[form](value))).encode(), JSON_TYPE) for status, make in DIALECTS]

    async with tool(replies(*said)) as server, proxied(REMINDERS, server.url) as proxy:
        body = json.dumps({"text": value, "at": "2026-12-01T09:00:00Z"}).encode()
        for number in range(len(DIALECTS)):
            seen = await proxy.post("/reminders", body, f"X-Conversation-Id: c{number}")
            assert 400 <= seen.status or b'"is_error":true' in seen.body
        listed = json.loads((await proxy.ask_admin("/-/calls")).body)["calls"]
        pages = [await proxy.ask_admin(f"/-/calls/{entry['id']}") for entry in listed]
        pages += [
            await proxy.ask_admin(path) for path in ("/-/calls", "/-/attempts", "/-/overview", "/-/conversations")
        ]
        pages += [await proxy.ask_admin("/-/tools/%2Freminders/add_reminder"), await proxy.ask_admin("/metrics")]
    text = "\n".join((*(page.body.decode() for page in pages), proxy.log.getvalue())).lower()
    text = UUID.sub("", text)  # chance makes these, and they may spell a piece of a number
    assert (len(DIALECTS), []) == (len(listed), [trace for trace in list_traces(value) if trace in text])


async def test_the_shown_config_has_no_secret_in_any_place() -> None:
    secrets = {
        "on_escalation": (
            "{webhook: 'https://hooks.example/services/T0/B0/PLANTED1?token=PLANTED2', secret: 0123456789abcdef}"
        ),
        "upstreams": (
            '{tools: {url: "http://127.0.0.1:9"}, '
            "db: {command: [server, --token=PLANTED4, 'postgresql://me:PLANTED5@db/x']}, "
            "env: {command: ['env TOKEN=PLANTED6 server']}}"
        ),
    }
    async with proxied(REMINDERS, **secrets) as proxy:
        text = (await proxy.ask_admin("/-/config")).body.decode()
    assert "PLANTED" not in text
    shown = json.loads(text)
    config = shown.get("config", shown)
    assert "https://hooks.example/***" == config["on_escalation"]["webhook"]
    assert ["server", "***", "***"] == config["upstreams"]["db"]["command"]


@pytest.mark.parametrize(
    ("key", "described"),
    [
        ("admin: {token: tok5}", "a text of 4 characters"),
        ("admin: {token: 0123456789abcdef, readers: tok5}", "a text of 4 characters"),
        ("admin: {token: 918273645}", "a number"),
        ("state: {backend: redis, url: 'redis+sentinel://h/m', sentinel: {password: 918273645}}", "a number"),
        ("defaults: {headers: {set: {x-key: 918273645}}}", "a number"),
        ("upstreams: {a: {url: 'http://h/x#token=tok5'}}", "a text of 21 characters"),
        ("upstreams: {a: {url: 'http://h', health: '/x?token=tok5'}}", "a text of 13 characters"),
        ("upstreams: {a: {command: 'server --token=tok5'}}", "a text of 19 characters"),
    ],
)
def test_a_mistake_about_a_secret_does_not_print_it(tmp_path: Any, key: str, described: str) -> None:
    (tmp_path / "c.yaml").write_text(f"version: 1\n{key}\nroutes: []\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yaml", {})
    told = " ".join(map(str, caught.value.mistakes))
    assert described in told
    assert ["tok5" in told, "918273645" in told] == [False, False]


# --- dry runs ---------------------------------------------------------------------------------------------------------
def test_a_dry_run_shares_nothing_that_leaves_the_process() -> None:
    class Marked:
        """Replaces a service of the running proxy."""

        def now(self) -> float:
            return 0.0

    marked: dict[str, Any] = {each.name: Marked() for each in fields(Services)}
    served = Services(**marked)
    dry = make_dry_services(served)
    shared = {each.name for each in fields(Services) if getattr(dry, each.name) is getattr(served, each.name)}
    assert {"clock", "pacing", "extra_lines", "elsewhere"} == shared


async def test_a_dry_run_of_the_last_attempt_tells_no_webhook() -> None:
    async with tool(replies(answer("204 No Content", b""))) as webhook:
        keys = {
            "on_escalation": f"{{webhook: '{webhook.url}/x', secret: 0123456789abcdef}}",
            "defaults": "{attempts: {max: 1}}",
        }
        async with proxied(REMINDERS, **keys) as proxy:
            question = json.dumps({"route": "/reminders", "body": {"text": 5}}).encode()
            head = [
                "POST /-/validate HTTP/1.1",
                "Host: 127.0.0.1",
                "Content-Type: application/json",
                f"Content-Length: {len(question)}",
            ]
            seen = await exchange(proxy.admin, "\r\n".join([*head, "", ""]).encode() + question)
            refused = await proxy.post("/reminders", b'{"text": 5}')
    assert (200, "refuse") == (seen.status, json.loads(seen.body)["decision"])
    assert 400 == refused.status
    assert 1 == len(webhook.seen)  # of the call, not of the dry run


async def test_masks_the_words_of_a_hook_as_a_whole() -> None:
    """A hook may quote values in any form: too short to be found again, or written as an amount."""
    refusal = "Customer 42 (Bo) may not be charged 1,250.50"
    hooks = f"[{{use: 'tests.hooks.samples:Says', settings: {{refuse: '{refusal}'}}}}]"
    async with tool(replies(OK)) as server, proxied(REMINDERS, server.url, hooks=hooks) as proxy:
        body = json.dumps({"text": "Bo", "at": "2026-12-01T09:00:00Z"}).encode()
        seen = await proxy.post("/reminders", body)
        shown = [(await proxy.ask_admin(path)).body.decode() for path in ("/-/calls", "/-/calls?text=customer")]
        (entry,) = json.loads(shown[0])["calls"]
        opened = (await proxy.ask_admin(f"/-/calls/{entry['id']}")).body.decode()

    assert refusal in seen.body.decode()
    assert ("***", []) == (entry["reason"], json.loads(shown[1])["calls"])
    assert [] == [text for text in (*shown, opened) if "Customer" in text or "Bo)" in text or "1,250" in text]
