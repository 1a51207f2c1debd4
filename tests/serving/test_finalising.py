"""Structured-output finalisation (Compozy gap 5): a route with `upstream: none` checks a model's last word."""

from __future__ import annotations

import pytest

from proxy.config.mistakes import ConfigError
from tests.serving.proxied import Proxied, code, proxied, told
from tests.serving.wire import Seen, exchange, post

REPORT = """
  - path: /final
    upstream: none
    tool: report
    %s
    schema: {type: object, properties: {score: {type: number}, title: {type: string}}, required: [score, title]}
"""
SAID = "X-Conversation-Id: c"


async def final(proxy: Proxied, body: bytes) -> Seen:
    return await proxy.post("/final", body, SAID)


async def test_an_output_that_fits_comes_back_as_it_was_sent() -> None:
    body = b'{ "title": "T", "score": 4.50 }'
    async with proxied(REPORT % "") as proxy:
        seen = await final(proxy, body)
        repaired = await final(proxy, b'{"title": "T", "score": "4.50"}')

    assert (200, body) == (seen.status, seen.body)
    assert (200, b'{"title":"T","score":4.50}') == (repaired.status, repaired.body)
    assert "string_to_number;path=/score" == repaired.header("tool-repairs")


async def test_a_wrong_output_may_be_corrected_twice_and_the_answer_says_how() -> None:
    async with proxied(REPORT % "") as proxy:
        seen = [await final(proxy, b'{"score": "high", "n": %d}' % number) for number in range(3)]

    assert ["1/3", "2/3", "3/3"] == [one.header("tool-attempt") for one in seen]
    assert "answer again with the corrected JSON only: no other text around it." in told(seen[0])["content"]
    assert "call the tool again" not in told(seen[0])["content"]
    assert (400, "ATTEMPTS_EXHAUSTED") == code(seen[2])
    assert "tell the user what is missing" in told(seen[2])["content"]


async def test_a_corrected_output_ends_the_attempts_and_is_counted() -> None:
    async with proxied(REPORT % "") as proxy:
        await final(proxy, b'{"score": 1}')
        await final(proxy, b'{"score": 1, "title": "T"}')
        again = await final(proxy, b'{"score": 1}')
        metrics = (await proxy.ask_admin("/metrics")).body.decode()

    assert "2/3" == again.header("tool-attempt")  # the same output once more
    assert 'toolproxy_attempts_total{route="/final",tool="report"} 2.0' in metrics
    assert 'toolproxy_corrected_total{attempts="1",route="/final",tool="report"} 1.0' in metrics
    kinds = [line for line in metrics.splitlines() if line.startswith("toolproxy_tool_info")]
    assert ['kind="validate"' in line for line in kinds] == [True]


GOOD = '{"score": 4.50, "title": "T {1}"}'


@pytest.mark.parametrize(
    "text",
    [
        "Here is the result:\n%s",
        "%s\nLet me know if you need more.",
        "Here is the [final] result, as you'd \"asked\":\n```json\n%s\n```\nDone.",
        "A draft was {\"score\": \"no\"}, the result is %s.",
        "The result is %s. Once more: %s",
        'It follows {this} shape: %s',
    ],
)  # fmt: skip
@pytest.mark.parametrize("content_type", ["application/json", "text/plain; charset=utf-8", "text/markdown"])
async def test_the_json_is_found_in_the_prose_around_it(text: str, content_type: str) -> None:
    body = text.replace("%s", GOOD).encode()
    async with proxied(REPORT % "") as proxy:
        seen = await exchange(proxy.port, post("/final", body, content_type=content_type))
    assert (200, GOOD.encode(), "embedded_json;path=") == (seen.status, seen.body, seen.header("tool-repairs"))


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("two that fit, and they differ", f'{GOOD} or {{"score": 5, "title": "U"}}'),
        ("none that fits", 'Here: {"score": "high"}'),
        ("what would have to be repaired as well", 'Here: {"score": "4", "title": "T"}'),
        ("one that stands in another", f'Here: {{"report": {GOOD}}}'),
        ("it may have been cut off", f'First {GOOD}, then {{"score": 5, "ti'),
        ("it was cut off", 'Here is the result: {"score": 4, "title": "T"'),
        ("no JSON at all", "I could not find it."),
        ("keys twice", 'Here: {"score": 1, "score": 2, "title": "T"}'),
    ],
)
async def test_rejects_prose_if_its_meaning_is_not_certain(why: str, text: str) -> None:
    async with proxied(REPORT % "") as proxy:
        seen = await final(proxy, text.encode())
    assert (400, "INVALID_ARGUMENTS") == code(seen), why


async def test_prose_is_refused_below_standard_and_in_calls_of_tools() -> None:
    call = "  - {path: /call, upstream: tools, tool: t, schema: {type: object}}\n"
    async with proxied(REPORT % "repair: basic" + call) as proxy:
        strict = await final(proxy, f"Here: {GOOD}".encode())
        called = await proxy.post("/call", b"Here: {}")
        text = await exchange(proxy.port, post("/call", b"{}", content_type="text/plain"))
    assert [400, 400, 415] == [one.status for one in (strict, called, text)]


@pytest.mark.parametrize(("retries", "limit"), [(0, 1), (1, 2), (4, 5)])
async def test_the_number_of_retries_is_the_configs(retries: int, limit: int) -> None:
    async with proxied(REPORT % f"finalize_output_retries: {retries}") as proxy:
        seen = await final(proxy, b"{}")
    assert f"1/{limit}" == seen.header("tool-attempt")


async def test_finalize_output_retries_of_the_defaults_apply_only_to_final_outputs() -> None:
    call = "  - {path: /call, upstream: tools, tool: t, schema: {type: object, required: [a]}}\n"
    keys = {"defaults": "{finalize_output_retries: 0, attempts: {max: 7}}"}
    async with proxied(REPORT % "" + call, **keys) as proxy:
        seen = [await proxy.post(path, b"{}", SAID) for path in ("/final", "/call")]
    assert ["1/1", "1/7"] == [one.header("tool-attempt") for one in seen]


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("{path: /a, upstream: tools, tool: t, schema: {}, finalize_output_retries: 1}",
         "`finalize_output_retries` has no effect: only a route with `upstream: none` finalises outputs"),
        ("{path: /a, upstream: none, tool: t, schema: {}, response_schema: {}}",
         "`response_schema` has no effect: no tool answers here"),
    ],
)  # fmt: skip
async def test_keys_that_mean_nothing_are_mistakes(route: str, said: str) -> None:
    with pytest.raises(ConfigError, match="has no effect") as raised:
        async with proxied(f"  - {route}\n"):
            raise AssertionError("started")
    assert said in str(raised.value)
