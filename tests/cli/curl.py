"""The little of curl that our docs and the demo use (`-s`, `-i`, `-H`, `-d`), so that pasted lines can be tested
without it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from http.client import HTTPConnection
from urllib.parse import urlsplit


@dataclass
class Curl:
    """One parsed command line."""

    url: str = ""
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    with_head: bool = False


def parse(line: str) -> Curl:
    """The request a command line means. Fails for an option that is not known here."""
    words = iter(shlex.split(line))
    assert next(words) == "curl"
    found = Curl()
    for word in words:
        if word == "-d":
            found.body = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(":")
            found.headers[name] = value.strip()
        elif word.startswith("-"):
            assert set(word[1:]) <= set("si"), word
            found.with_head = found.with_head or "i" in word
        else:
            found.url = word
    return found


def run(line: str, port: int | None = None) -> tuple[int, str]:
    """Status and output of a command line; `port` goes before the one in its URL."""
    asked = parse(line)
    url = urlsplit(asked.url)
    connection = HTTPConnection(url.hostname or "", port or url.port, timeout=120)
    body = None if asked.body is None else asked.body.encode()
    connection.request("GET" if body is None else "POST", url.path, body, asked.headers)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    if not asked.with_head:
        return reply.status, text
    head = [f"HTTP/1.1 {reply.status} {reply.reason}", *(f"{name}: {value}" for name, value in reply.getheaders())]
    return reply.status, "\n".join(head) + "\n\n" + text
