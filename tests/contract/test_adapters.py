"""The promises of every adapter: one suite over `ADAPTERS`. An adapter brings one sample, a line in `SAMPLES`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import pytest

from proxy.adapters import ADAPTERS as OWN_ADAPTERS
from proxy.adapters import find_adapter
from proxy.adapters.base import Adapter, CallShape, ConversationSource
from proxy.adapters.ladder import find_call_id, read_trace_id
from proxy.core.contract.attempts import hash_name
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.codes import BAD_REQUEST, INVALID_ARGUMENTS
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    Document,
    Failure,
    Fields,
    Headers,
    JsonProblem,
    RawRequest,
    Repair,
    Rung,
    ToolCall,
    ToolResult,
)
from proxy.extensions.operations.adapters.http_request import BoundOperation
from proxy.extensions.operations.core.http.operations import RequestTemplate
from proxy.plugin import SpeaksProtocol
from proxy.plugins import find_plugins

ADAPTERS = {
    **OWN_ADAPTERS,
    **{
        plugin.adapter: find_adapter(plugin.adapter)
        for plugin in find_plugins(SpeaksProtocol)
        if not plugin.relay_key  # no call is read there
    },
}


@dataclass(frozen=True)
class Sample:
    """A route of this adapter, and a function that puts arguments into its body.

    `upstream`: the body for the upstream (the same function unless the adapter says otherwise). `enveloped`: a body
    that is not JSON is no call at all, and failures have the protocol's own envelope.
    """

    shape: CallShape
    body: Callable[[bytes], bytes]
    params: Mapping[str, str]
    enveloped: bool = False


OPENAI = CallShape(
    tool_pointer=("function", "name"),
    arguments_pointer=("function", "arguments"),
    arguments_encoding="json_string",
    call_id_pointer=("id",),
)
SAMPLES = {
    "plain": Sample(CallShape(tool="weather"), lambda arguments: arguments, {}),
    "plain in the path": Sample(CallShape(tool_param="tool"), lambda arguments: arguments, {"tool": "weather"}),
    "dispatch": Sample(
        CallShape(tool_pointer=("call", "name"), arguments_pointer=("call", "arguments"), call_id_pointer=("id",)),
        lambda arguments: b'{ "id": "b-1", "call": {"name" : "weather", "arguments": ' + arguments + b' , "x":1.10} }',
        {},
    ),
    "dispatch of strings": Sample(
        OPENAI,
        lambda arguments: b'{"id":"b-1", "function":{"name":"weather","arguments":' + dumps(arguments.decode()) + b"}}",
        {},
    ),
    "mcp": Sample(
        CallShape(),
        lambda arguments: (
            b'{ "jsonrpc":"2.0", "id": "b-1", "method" : "tools/call", "params": {"name" : "weather", "arguments": '
            + arguments
            + b' , "x":1.10} }'
        ),
        {},
        enveloped=True,
    ),
    "http": Sample(
        CallShape(
            tool="weather",
            operation=BoundOperation(RequestTemplate("POST", "/call", body="application/json", body_required=True)),
        ),
        lambda arguments: arguments,
        {},
    ),
}


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> tuple[Adapter, Sample]:
    return ADAPTERS[request.param.split(" ")[0]], SAMPLES[request.param]


def raw(sample: Sample, body: bytes, headers: Headers = (), **changes: Any) -> RawRequest:
    made = RawRequest("POST", "/call", "", Fields(headers), body, sample.params, "10.0.0.9")
    return replace(made, **changes)


def decoded(adapter: Adapter, request: RawRequest, shape: CallShape) -> ToolCall:
    call = adapter.decode(request, shape, "fresh-1")
    assert isinstance(call, ToolCall)
    return call


def document(call: ToolCall) -> Document:
    assert isinstance(call.arguments, Document)
    return call.arguments


def test_every_adapter_has_a_sample() -> None:
    assert set(ADAPTERS) == {name.split(" ")[0] for name in SAMPLES}
    assert all(name == adapter.name for name, adapter in ADAPTERS.items())


ARGUMENTS = [b'{ "lat" : 1.10, "n":9007199254740993 }', b'{"text":"caf\xc3\xa9 \\u0041"}', b"{}", b"[1]", b'"text"']


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_the_arguments_are_read_with_their_exact_bytes(sample: tuple[Adapter, Sample], arguments: bytes) -> None:
    adapter, made = sample
    call = decoded(adapter, raw(made, made.body(arguments)), made.shape)

    assert ("weather", arguments, dumps(parse(arguments)), ()) == (
        call.tool,
        document(call).text,
        dumps(document(call).value),
        document(call).repairs,
    )


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_a_clean_call_is_sent_on_as_the_very_body(sample: tuple[Adapter, Sample], arguments: bytes) -> None:
    adapter, made = sample
    request = raw(made, made.body(arguments))
    call = decoded(adapter, request, made.shape)

    assert request.body == adapter.rewrite(request, made.shape, CheckedCall(call, arguments, document(call).value))


@pytest.mark.parametrize(
    "mended", [b'{"lat":1.10,"n":123456789012345678901234567890}', b'{"a":"\xc3\xa9\\"\\\\"}', b"{}"]
)
def test_a_repaired_call_is_sent_on_with_only_the_arguments_changed(
    sample: tuple[Adapter, Sample], mended: bytes
) -> None:
    adapter, made = sample
    request = raw(made, made.body(b'{ "lat" : "1.10" }'))
    call = decoded(adapter, request, made.shape)
    checked = CheckedCall(call, mended, parse(mended), (Repair("string_to_number", ("lat",)),))

    assert made.body(mended) == adapter.rewrite(request, made.shape, checked)


def test_a_report_only_call_is_sent_on_unchanged(sample: tuple[Adapter, Sample]) -> None:
    adapter, made = sample
    request = raw(made, made.body(b'{"lat":"1"}'))
    call = decoded(adapter, request, made.shape)
    checked = CheckedCall(call, b'{"lat":1}', {"lat": 1}, (Repair("string_to_number", ("lat",)),), enforced=False)

    assert request.body == adapter.rewrite(request, made.shape, checked)


@pytest.mark.parametrize("arguments", [b'{"lat": 1', b'{"a":1,"a":2}', b"{'a': 1}"])
def test_arguments_that_cannot_be_read_are_a_problem_of_the_call(
    sample: tuple[Adapter, Sample], arguments: bytes
) -> None:
    adapter, made = sample
    call = adapter.decode(raw(made, made.body(arguments)), made.shape, "fresh-1")

    if made.enveloped and isinstance(call, Failure):
        assert BAD_REQUEST is call.code
        return
    assert isinstance(call, ToolCall)
    assert isinstance(call.arguments, JsonProblem)
    assert call.raw != b""


def test_text_repairs_happen_only_if_the_route_allows_them(sample: tuple[Adapter, Sample]) -> None:
    adapter, made = sample
    if made.enveloped:
        pytest.skip("its clients write the envelope themselves, so its text is never mended")
    fenced = made.body(b"```json\n{}\n```")
    allowed = replace(made.shape, text_repairs=frozenset({"code_fence"}))
    call = decoded(adapter, raw(made, fenced), made.shape)
    again = decoded(adapter, raw(made, fenced), allowed)

    assert isinstance(call.arguments, JsonProblem)
    if made.shape.arguments_pointer is None or made.shape.arguments_encoding == "json_string":
        assert (b"{}", (Repair("code_fence", ()),)) == (document(again).text, document(again).repairs)


@pytest.mark.parametrize("body", [b"", b"  \n"])
def test_an_empty_body_never_raises(sample: tuple[Adapter, Sample], body: bytes) -> None:
    adapter, made = sample
    if made.enveloped:
        assert isinstance(adapter.decode(raw(made, body), made.shape, "fresh-1"), Failure)
        return
    call = decoded(adapter, raw(made, body), made.shape)

    expected = Document(b"", None) if adapter.name in ("plain", "http") else call.arguments
    assert expected == call.arguments
    assert ("weather" if adapter.name in ("plain", "http") else "") == call.tool


def test_a_failure_is_encoded_as_json_with_the_call_id(sample: tuple[Adapter, Sample]) -> None:
    adapter, made = sample
    request = raw(made, made.body(b"{}"))
    call = decoded(adapter, request, made.shape)
    reply = adapter.encode(ToolResult(call, Failure(INVALID_ARGUMENTS, "no")), "auto", "category", "", request)

    told = json.loads(reply.body)
    expected = (200, told.get("id")) if made.enveloped else (400, told.get("tool_call_id"))
    assert expected == (reply.status, call.call_id)
    assert ("Content-Type", "application/json") in reply.headers


def test_the_accept_header_may_choose_the_format(sample: tuple[Adapter, Sample]) -> None:
    adapter, made = sample
    if made.enveloped:
        pytest.skip("its protocol has one format")
    call = decoded(adapter, raw(made, made.body(b"{}")), made.shape)
    result = ToolResult(call, Failure(INVALID_ARGUMENTS, "no"))

    assert ("Content-Type", "application/problem+json") in adapter.encode(
        result, "auto", "category", "application/problem+json"
    ).headers


# --- dispatch alone ---------------------------------------------------------------------------------------------------
DISPATCH = CallShape(tool_pointer=("name",), arguments_pointer=("arguments",))


def dispatched(body: bytes, shape: CallShape = DISPATCH) -> tuple[RawRequest, ToolCall]:
    request = RawRequest("POST", "/", "", Fields(), body, {}, "")
    return request, decoded(ADAPTERS["dispatch"], request, shape)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"arguments": {}}', "is missing"),
        (b'{"name": null}', "is of type null"),
        (b'{"name": ""}', "is empty"),
        (b"[]", "is missing"),
    ],
)
def test_says_where_the_name_of_the_tool_belongs(body: bytes, why: str) -> None:
    (found,) = dispatched(body)[1].violations
    assert f"'name' {why}, set it to the tool's exact name" == found.message


@pytest.mark.parametrize(
    "body", [b"{}", b'{"name": 5}', b'{"name": null}', b"[]", b"1", b'"weather"', b'{"name": ["weather"]}']
)
def test_a_body_without_a_tools_name_calls_the_tool_without_name(body: bytes) -> None:
    assert "" == dispatched(body)[1].tool


def test_a_body_without_arguments_has_none() -> None:
    assert Document(b"", None) == dispatched(b'{"name": "weather"}')[1].arguments


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "w", "arguments": {}, "Name": "other"}',
        b'{"name": "w", "arguments": {}, "ARGUMENTS": {"a": 1}}',
        b'{"name": "w", "argument\xc5\xbf": {"a": 1}}',
    ],
)
def test_a_body_that_reads_otherwise_without_case_is_unreadable(body: bytes) -> None:
    call = dispatched(body)[1]

    assert ("", body) == (call.tool, call.raw)
    assert isinstance(call.arguments, JsonProblem)


DEEP = replace(DISPATCH, arguments_pointer=("p", "q"))
PLACES = [
    (DISPATCH, b'{"name": "w"}', b'{"arguments":{"a":1},"name": "w"}'),
    (DISPATCH, b'{"name": "w", "arguments": null}', b'{"name": "w", "arguments": {"a":1}}'),
    (DEEP, b'{"name": "w"}', b'{"p":{"q":{"a":1}},"name": "w"}'),
    (DEEP, b'{"name": "w", "p": null}', b'{"name": "w", "p": {"q":{"a":1}}}'),
    (DEEP, b'{"name": "w", "p": {}}', b'{"name": "w", "p": {"q":{"a":1}}}'),
    (OPENAI, b'{"function": {"name": "w"}}', b'{"function": {"arguments":"{\\"a\\":1}","name": "w"}}'),
    (
        OPENAI,
        b'{"function": {"name": "w", "arguments": {"a": "1"}}}',
        b'{"function": {"name": "w", "arguments": {"a":1}}}',
    ),
]


@pytest.mark.parametrize(("shape", "body", "sent"), PLACES)
def test_repaired_arguments_find_their_place(shape: CallShape, body: bytes, sent: bytes) -> None:
    request, call = dispatched(body, shape)
    checked = CheckedCall(call, b'{"a":1}', {"a": 1}, (Repair("x", ()),))

    assert sent == ADAPTERS["dispatch"].rewrite(request, shape, checked)


def test_repairing_only_the_name_changes_only_the_name() -> None:
    request, call = dispatched(b'{"name": "functions.weather", "arguments": { "a" : 1.0 }}')
    checked = CheckedCall(replace(call, tool="weather"), b'{ "a" : 1.0 }', {"a": 1})

    assert b'{"name": "weather", "arguments": { "a" : 1.0 }}' == ADAPTERS["dispatch"].rewrite(
        request, DISPATCH, checked
    )


# --- conversation and call id -----------------------------------------------------------------------------------------
LADDER = (
    ConversationSource("header", "X-Conversation-Id"),
    ConversationSource("meta", "openai/session"),
    ConversationSource("body", "/thread"),
    ConversationSource("trace"),
    ConversationSource("session", "mcp-session-id"),
    ConversationSource("address"),
)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RUNGS: list[tuple[Headers, bytes, Rung]] = [
    ((("x-conversation-id", "c"), ("traceparent", TRACE)), b'{"thread": "t"}', Rung.HEADER),
    ((("traceparent", TRACE),), b'{"_meta": {"openai/session": "s"}, "thread": "t"}', Rung.META),
    ((("traceparent", TRACE),), b'{"thread": 17}', Rung.BODY),
    ((("traceparent", TRACE), ("mcp-session-id", "m")), b"{}", Rung.TRACE),
    ((("traceparent", "00-" + "0" * 32 + "-b7ad6b7169203331-01"), ("mcp-session-id", "m")), b"{}", Rung.SESSION),
    ((("x-conversation-id", ""), ("authorization", "Bearer secret")), b'{"thread": null}', Rung.ADDRESS),
    ((), b"not json", Rung.ADDRESS),
]


@pytest.mark.parametrize(("headers", "body", "rung"), RUNGS)
def test_the_first_rung_that_holds_something_names_the_conversation(headers: Headers, body: bytes, rung: Rung) -> None:
    request = RawRequest("POST", "/", "", Fields(headers), body, {}, "10.0.0.9")
    call = decoded(ADAPTERS["plain"], request, CallShape(tool="t", ladder=LADDER))

    assert rung is call.conversation.rung
    assert 32 == len(hash_name(call.conversation))
    assert all(value not in hash_name(call.conversation) for _, value in headers if len(value) > 1)


def talked(headers: Headers, peer: str = "10.0.0.9", ladder: tuple[ConversationSource, ...] = LADDER) -> Conversation:
    request = RawRequest("POST", "/", "", Fields(headers), b"{}", {}, peer)
    return decoded(ADAPTERS["plain"], request, CallShape(tool="t", ladder=ladder)).conversation


def test_the_address_rung_tells_callers_apart_by_credential_agent_and_address() -> None:
    base: Headers = (("authorization", "a"), ("user-agent", "u"))
    others = [
        talked((("authorization", "b"), ("user-agent", "u"))),
        talked((("authorization", "a"), ("user-agent", "v"))),
        talked(base, "10.0.0.8"),
    ]

    assert talked(base) == talked(base)
    assert 4 == len({hash_name(conversation) for conversation in (talked(base), *others)})


def test_the_same_word_on_two_rungs_is_two_conversations() -> None:
    header, session = (("x-conversation-id", "c"),), (("mcp-session-id", "c"),)

    assert hash_name(talked(header)) != hash_name(talked(session))


def test_a_ladder_without_a_last_resort_still_ends_at_the_address() -> None:
    assert Rung.ADDRESS is talked((), ladder=(ConversationSource("header", "x"),)).rung


@pytest.mark.parametrize(
    ("headers", "body", "call_id"),
    [
        ((("x-tool-call-id", "h-1"),), b'{"id": "b-1"}', "h-1"),
        ((), b'{"id": "b-1"}', "b-1"),
        ((), b'{"id": 7}', "7"),
        ((), b"{}", "fresh-1"),
        ((("x-tool-call-id", "with spaces"),), b"{}", "with spaces"),
        ((), '{"id": "Aufruf für 東京 1"}'.encode(), "Aufruf für 東京 1"),
        ((), b'{"id": "\\u202eabc"}', "fresh-1"),
        ((("x-tool-call-id", "x" * 1025),), b"{}", "sha256-" + hashlib.sha256(b"x" * 1025).hexdigest()),
        ((), b'{"id": "a\\r\\nb"}', "fresh-1"),
        ((), b'{"id": true}', "fresh-1"),
    ],
)
def test_a_call_has_the_clients_id_if_it_is_valid(headers: Headers, body: bytes, call_id: str) -> None:
    request = RawRequest("POST", "/", "", Fields(headers), body, {}, "")

    assert call_id == decoded(ADAPTERS["plain"], request, CallShape(tool="t", call_id_pointer=("id",))).call_id


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (TRACE, "0af7651916cd43dd8448eb211c80319c"),
        (TRACE.replace("00-", "cc-") + "-more", "0af7651916cd43dd8448eb211c80319c"),
        ("ff" + TRACE[2:], None),
        (TRACE.upper(), None),
        (TRACE[:-1], None),
        ("", None),
        (None, None),
    ],
)
def test_a_trace_id_is_read_as_w3c_writes_it(header: str | None, found: str | None) -> None:
    assert found == read_trace_id(header)


@pytest.mark.parametrize("sent", ["c" * 1024, "c" * 1025])
def test_a_call_id_of_more_than_1024_characters_goes_back_as_its_hash(sent: str) -> None:
    request = RawRequest("POST", "/", "", Fields((("x-tool-call-id", sent),)), b"{}", {}, "127.0.0.1")
    expected = sent if len(sent) == 1024 else "sha256-" + sha256(sent.encode()).hexdigest()
    assert expected == find_call_id(request, None, {}, "fresh")
