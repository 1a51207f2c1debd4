"""The actions of clients at a proxy, step by step, and those of the tool behind it on their calls."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from random import Random
from typing import Final

from tests.serving.wire import JSON_TYPE, answer, post

# Targets of calls that may be right, and of all others.
SOUND: Final = (
    "/w", "/w", "/w?a=1", "/t/7", "/strict", "/watched", "/small", "/page", "/kept", "/wrapped", "/capped", "/again",
    "/handed", "/call", "/n/one", "/one",
)  # fmt: skip
_TARGETS: Final = (
    "/w", "/w", "/w", "/w?lat=x", "/w?", "/w/", "//w", "/./w", "/x/../w", "/w;a=1", "/%77", "/w%2F", "/w%00", "/W",
    "/w#a", "http://tools.test/w", "http://other/w", "http://tools.test", "/t/7", "/t/a%2Fb", "/t/..", "/t/%2e%2e",
    "/t/a;b", "/t/a.", "/t/%C3%A9", "/t/%E9", "/t/a?b=c", "/t/", "/strict", "/strict?a=1", "/strict?", "/watched",
    "/watched?a=1", "/small", "/page", "/kept", "/here", "/wrapped", "/capped", "/again", "/handed", "/call",
    "/n/one", "/n/two", "/n/On%65", "/n/ONE", "/n/three", "/n/one/", "/one", "/two", "/mcp", "/mcp?x=1", "/relay",
    "/relay/a%2Fb", "*", "/nowhere", "/brief",
)  # fmt: skip
_FIELDS: Final = (
    "Connection: close", "Connection: keep-alive", "Connection: X-Do, keep-alive", "Connection: Content-Type",
    "Expect: 100-continue", "Expect: x", "Upgrade: h2c", "Upgrade: websocket", "Connection: upgrade",
    "Content-Type: application/json", "Content-Type: text/plain", "Content-Type: application/json; charset=utf-7",
    "Content-Type: application/json; charset=UTF-8", "Content-Type: a/b+json", "Content-Encoding: identity",
    "Content-Encoding: br", "Content-Encoding: ", "Authorization: Bearer x", "Authorization: Basic eA==",
    "Host: tools.test", "Content-Length: 10", "Content-Length: 0", "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked", "Content_Length: 3", "X-HTTP-Method-Override: GET", "X_Method_Override: PUT",
    "X-Original-URL: /x", "X-Rewrite-URL: /x", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Host: evil",
    "Forwarded: for=1.2.3.4", "X-Real-IP: 1.2.3.4", "Via: 1.1 other", "Origin: https://a.test",
    "Origin: https://b.test", "Origin: null", "Cookie: a=b", "X-Own: you", "Content-MD5: a", "Digest: sha-256=x",
    "traceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "traceparent: x", "X-A: \xe9", "X-Empty:",
    "TE: trailers", "Accept: text/html", "Accept: application/problem+json", "X-Tool-Call-Id: t1",
    "Idempotency-Key: k", "X-Conversation-Id: other", "X-Request-Id: two", "Proxy-Authorization: Basic x",
    "Trailer: X-T", "Mcp-Session-Id: s", "Accept: text/event-stream, application/json",
)  # fmt: skip
# By the header X-Do: what the tool answers, and where it leaves the connection behind that.
DOES: Final = {
    "fail": answer("500 Internal Server Error", b'{"error": "boom"}', JSON_TYPE),
    "refuse": answer("422 Unprocessable Entity", b'{"detail": "no"}', JSON_TYPE),
    "busy": answer("503 Service Unavailable", b"", "Retry-After: 0"),
    "complain": answer("200 OK", b'{"success": false, "error": "no"}', JSON_TYPE),
    "empty": b"HTTP/1.1 204 No Content\r\n\r\n",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-T: 1\r\n\r\n",
    "early": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + answer("200 OK", b"{}", JSON_TYPE),
    "continue": b"HTTP/1.1 100 Continue\r\n\r\n" + answer("200 OK", b"{}", JSON_TYPE),
    "switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "fields": answer("201 Created", b"{}", "Set-Cookie: a=b", "X-A: 1", "x-a: 2", "Connection: X-Hop", "X-Hop: 1",
                     "Content-Length: 2", "Tool-Repairs: 9", "Transfer-Encoding: identity"),
    "control": answer("200 OK", b"{}", "X-A: a\x01b"),
    "latin": answer("200 OK", b"{}", JSON_TYPE).replace(b"\r\n\r\n", b"\r\nX-A: \xe9\r\n\r\n"),
    "nonsense": b"HTP/1.1 200 OK\r\n\r\n",
    "surplus": answer("200 OK", b"{}", JSON_TYPE) + b"more",
    "twice": answer("200 OK", b"{}", JSON_TYPE) * 2,
    "last": answer("200 OK", b"{}", JSON_TYPE, "Connection: close"),
    "old": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "gzip": answer("200 OK", gzip.compress(b'{"a": 1}', mtime=0), JSON_TYPE, "Content-Encoding: gzip"),
    "large": answer("200 OK", b'"' + b"x" * 300_000 + b'"', JSON_TYPE),
    "die": b"",
    "half": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",
    "cut head": b"HTTP/1.1 200 OK\r\nConte",
    "to the end": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}",
}  # fmt: skip
ENDS: Final = frozenset({"die", "half", "cut head", "to the end", "nonsense", "switch"})
# One thing that a client, or somebody else, does: ("send", client, bytes) and the like.
Step = tuple[str, int, bytes]


def make_case(random: Random, case: int) -> tuple[list[Step], dict[str, bytes]]:
    """The steps of a case, and the bodies of its requests by their ids."""
    steps: list[Step] = []
    sent: dict[str, bytes] = {f"w-{case}": b'{"lat": 1}'}
    client = 0
    if random.random() < 0.8:  # leaves an idle connection to the tool
        steps = [("send", 1, post("/w", b'{"lat": 1}', f"X-Request-Id: w-{case}")), ("settle", 1, b"")]
    for number in range(random.choice((1, 1, 2, 2, 3))):
        name = f"r-{case}-{number}"
        whole, sent[name] = _make_request(random, name, f"c-{random.randrange(3)}-{case // 4}")
        if not steps or steps[-1][0] != "join":
            client = random.choice((client, client, client, 1))
        for part in _cut(random, whole):
            if steps and steps[-1][0] == "join":  # in the packet of the request before
                part = steps.pop()[2] + part  # noqa: PLW2901
            steps += [("send", client, part), ("pause", client, b"")]
        after = random.choice(("settle",) * 5 + ("join", "", "release", "end", "go", "reload"))
        if after == "join" and client == steps[-1][1]:
            steps[-2:] = [("join", client, steps[-2][2])]
        elif after not in ("", "join"):
            steps += [("settle", client, b"")] * (after in ("go", "end")) + [(after, client, b"")]
    return [("send", *step[1:]) if step[0] == "join" else step for step in steps], sent


def _cut(random: Random, whole: bytes) -> list[bytes]:
    """A request in one piece, in a few, or its head byte by byte."""
    if (chance := random.random()) < 0.7:
        return [whole]
    if chance < 0.73:
        return [bytes([byte]) for byte in whole[:700]] + [whole[700:]]
    places = sorted(random.randrange(len(whole)) for _ in range(random.choice((1, 1, 2, 3))))
    return [whole[start:end] for start, end in zip([0, *places], [*places, len(whole)], strict=True)]


def _body(random: Random) -> bytes:
    clean = random.choice(
        (b'{"lat": 1}', b'{"lat": 1.50, "note": "\xc3\xa9"}', b' {"lat":1e2}\n', b'{"lat": 1, "note": "a\\u0000"}')
    )
    return random.choice((
        clean, clean, clean, clean, clean, b'{"lat": "1"}', b'{"lat": "x"}', b"{}", b"", b"{", b"[1]", b"null",
        b"\xef\xbb\xbf" + clean, b'{"lat": 1, "lat": 2}', b'{"lat": 1, "l\\u0061t": "x"}', b'{"lat": NaN}',
        b'{"lat": 1} x', clean + b" " * 70, b'{"lat": 1, "note": "' + b"x" * 40_000 + b'"}',
        b'{"lat": 1, "note": "\xff"}',
        b'{"lat": 1, "note": "\\ud800"}', b'{"lat": 99999999999999999999}', b'{"LAT": 1}', b'{"lat": 1, "more": 2}',
        b'{"tool": "one", "arguments": {"lat": 1}, "id": "7"}', b'{"tool": "one", "arguments": {"lat": "x"}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
    ))  # fmt: skip


def _make_request(random: Random, name: str, conversation: str) -> tuple[bytes, bytes]:
    """The bytes of a request, and its body if it has one meaning."""
    sound = random.random() < 0.6
    odd: Callable[..., bool] = lambda share=0.08: not sound and random.random() < share  # noqa: E731
    target = random.choice(SOUND if sound else _TARGETS)
    body = _body(random)
    if sound and random.random() < 0.9:
        body = b'{"tool": "one", "arguments": {"lat": 1.0}}' if target == "/call" else b'{"lat": 1.0}'
    coded = body
    fields = [f"Host: {'other' if odd() else 'tools.test'}", f"X-Request-Id: {name}"]
    fields.append(f"X-Conversation-Id: {conversation}")
    if not odd():
        fields.append("Content-Type: application/json")
    odd_fields = random.choice((0, 0, 0, 1, 1, 2)) if not sound or random.random() < 0.1 else 0
    fields += random.choices(_FIELDS, k=odd_fields)
    if random.random() < 0.4:
        fields.append("X-Do: " + random.choice((*DOES, "parts", "hold", "hold", "hold fail", "hold die")))
    if odd(0.04):
        coded = gzip.compress(body, mtime=0)
        fields.append("Content-Encoding: gzip")
    framing = (
        "length"
        if sound
        else random.choice(("length",) * 12 + ("chunks", "chunks", "longer", "shorter", "both", "none"))
    )
    if framing in ("chunks", "both"):
        fields.append("Transfer-Encoding: chunked")
        at = random.randrange(len(coded) + 1)
        parts = [part for part in (coded[:at], coded[at:]) if part]
        coded = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        coded += random.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX-T: 1\r\nContent-Length: 3\r\n\r\n"))
    if framing not in ("chunks", "none"):
        length = len(coded) + {"longer": 3, "shorter": -1}.get(framing, 0)
        fields.append(f"Content-Length: {max(length, 0)}")
        body = body[:length] if framing == "shorter" else body
    random.shuffle(fields)
    method = "POST" if sound else random.choice(("POST",) * 14 + ("GET", "HEAD", "PUT", "OPTIONS", "post"))
    version = "HTTP/1.1" if sound else random.choice(("HTTP/1.1",) * 14 + ("HTTP/1.0", "HTTP/1.2"))
    head = "\r\n".join((f"{method} {target} {version}", *fields, "", ""))
    return head.encode("latin-1") + coded, body
