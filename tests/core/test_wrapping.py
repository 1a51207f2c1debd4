"""`wrap_success`: a tool's answer as GoMind's `ToolResponse`, byte for byte."""

from __future__ import annotations

import gzip
import json

import pytest

from proxy.core.model.values import UpstreamReply
from proxy.core.tool_errors.answers import wrap_answer

JSON = ("Content-Type", "application/json")


def body_of(body: bytes, *headers: tuple[str, str], status: int = 200) -> bytes:
    found = wrap_answer(UpstreamReply(status, headers or (JSON,), body)).body
    assert isinstance(found, bytes)
    return found


@pytest.mark.parametrize(
    "body",
    [b'{"t": 22.50, "n":  9223372036854775809}', b"[1, 2]", b'"text"', b"0.10", b"null", b' {"data": 1}\n',
     b'{"success": "yes"}', b'{"data": {"success": true}}'],
)  # fmt: skip
def test_keeps_the_tools_own_bytes_inside(body: bytes) -> None:
    wrapping = body_of(body)

    assert b'{"success": true, "data": ' + body + b"}" == wrapping
    assert {"success": True, "data": json.loads(body)} == json.loads(wrapping)


@pytest.mark.parametrize("body", [b'{"success": true, "data": 1}', b'{"success": false}', b"", b"{", b"1 2", b"oops"])
def test_an_envelope_and_what_is_no_json_stay_as_they_are(body: bytes) -> None:
    assert body == body_of(body)


@pytest.mark.parametrize("status", [204, 205, 206, 207, 302, 404, 500])
def test_only_a_whole_success_is_wrapped(status: int) -> None:
    assert b"{}" == body_of(b"{}", status=status)


def test_does_not_wrap_other_types() -> None:
    assert b"{}" == body_of(b"{}", ("Content-Type", "text/plain"))
    assert b'{"success": true, "data": {}}' == body_of(b"{}", ("content-type", "application/hal+json; charset=utf-8"))


def test_wraps_a_decoded_answer_and_keeps_one_with_an_unknown_coding() -> None:
    reply = wrap_answer(
        UpstreamReply(200, (JSON, ("Content-Encoding", "gzip"), ("ETag", "x"), ("X", "1")), gzip.compress(b"[1]"))
    )

    assert UpstreamReply(200, (JSON, ("X", "1")), b'{"success": true, "data": [1]}') == reply
    assert b"??" == body_of(b"??", JSON, ("Content-Encoding", "br"))
