"""Requests that reach aiohttp, FastAPI, Flask, Go's net/http and express through the proxy: each reads them as the
proxy validated them. Services that fold names as PHP, Spring and CGI do read them so, too.

The tests cover every spelling of a cookie, a header, a query, a form and a multipart body that somebody once read in
two ways. They add 700 that are made of the same pieces.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import unquote, unquote_plus

import pytest

from tests.extensions.operations.served import ask, served
from tests.extensions.operations.test_one_reading import SERVICE
from tests.parties.environment import needs, servers
from tests.serving.wire import Seen, answer, replies, tool

pytestmark = pytest.mark.large

FORM: Final = "Content-Type: application/x-www-form-urlencoded"
Sent = tuple[str, str, bytes, tuple[str, ...]]  # method, target, body, headers


def make_cookies(chance: random.Random) -> Iterator[Sent]:
    names = [
        "sid",
        "sid",
        "n",
        "SID",
        " sid",
        "sid ",
        "sid\t",
        '"sid"',
        "sid[]",
        "x",
        "$sid",
        "s.id",
        "x y",
        "%73id",
        "n ",
        "'sid'",
        "_sid",
        "sid.",
    ]
    values = [
        "a",
        "b/c",
        '"a"',
        '"b/c"',
        '"a\\057b"',
        "a b",
        "a,sid=b/c",
        'a"',
        "b%2Fc",
        "a%20b",
        "5",
        "999",
        '"9',
        "",
        "a=b",
    ]
    for _ in range(250):
        parts = [
            chance.choice(names) + chance.choice(["=", "=", "=", " =", "= ", ""]) + chance.choice(values)
            for _ in range(chance.randint(1, 3))
        ]
        yield "GET", "/c", b"", ("Cookie: " + chance.choice(["; ", ";", ", ", " ; ", " "]).join(parts),)


def make_pairs(chance: random.Random, names: list[str], values: list[str], joints: list[str]) -> str:
    pairs = [chance.choice(names) + "=" + chance.choice(values) for _ in range(chance.randint(1, 3))]
    return chance.choice(joints).join(pairs)


def make_queries(chance: random.Random) -> Iterator[Sent]:
    names = [
        "limit",
        "limit",
        "tenant",
        "Limit",
        "limit[]",
        "limit[0]",
        "%6Cimit",
        "limit%00",
        " limit",
        "+limit",
        "q",
        "labels",
        "l.imit",
        "!limit",
        "_limit",
        "limit%00x",
        "%0Alimit",
        "limit%09",
        "%22limit%22",
        "limit[",
        "tenant.x",
    ]
    values = ["5", "999", "mine", "other", "5;limit=999", "5&amp;limit=999", "%35", "5%26limit=999", "+5", "5.0", "0x5"]
    for _ in range(200):
        yield (
            "GET",
            "/s?" + make_pairs(chance, names, values, ["&", "&", ";", "&amp;", "&&"]).replace(" ", "%20"),
            b"",
            (),
        )


def make_forms(chance: random.Random) -> Iterator[Sent]:
    names = ["limit", "limit", "name", "Limit", "limit[]", "doc", "admin", "name[a]", "limit.", "!limit", "_name",
             "%00", "limit%00", "+limit"]  # fmt: skip
    values = ["5", "999", "a/b", "A", "5;limit=999", "a%00", "a+b", "%E4", "a\t"]
    for _ in range(75):
        target = chance.choice(["/form", "/form", "/form?limit=9", "/form?x=1"])
        yield "POST", target, make_pairs(chance, names, values, ["&", "&", ";"]).encode(), (FORM,)


def make_headers(chance: random.Random) -> Iterator[Sent]:
    names = ["X-Lim", "X-Lim", "x-lim", "X_Lim", "X.Lim", "X^Lim", "X--Lim", "X-Lim-", "XLim", "X-Limit"]
    for _ in range(60):
        lines = (f"{chance.choice(names)}: {chance.choice(['5', '999', ' 5', '5, 999', '+5'])}" for _ in range(2))
        yield "GET", "/h", b"", tuple(lines)[: chance.randint(1, 2)]


def make_parts(chance: random.Random) -> Iterator[Sent]:
    names = ["limit", "limit", "name", "doc", "admin", "Limit", "_charset_", "limit[]"]
    files = ["", "", "", '; filename=""', '; filename="f"', "; filename*=utf-8''f", "; filename=f"]
    kinds = ["", "", "Content-Type: text/plain; charset=utf-7\r\n", "Content-Type: text/plain; charset=utf-8\r\n",
             "Content-Type: multipart/mixed; boundary=B\r\n", "Content-Transfer-Encoding: base64\r\n"]  # fmt: skip
    inner = '--A\nContent-Disposition: form-data; name="limit"\n\n999\n'
    texts = ["5", "999", "a/b", "+AC4ALgAv-", "", f"x\n{inner}", f"x\r{inner}", "x\r\n--AB\r\n", "utf-7", "--A"]
    types = ["boundary=A"] * 6
    types += ["boundary=A; boundary=B", "boundary=A; boundary*=utf-8''B", "boundary*0=A", 'boundary="A"',
             "Boundary=A", "boundary =A", 'x="; boundary=B"; boundary=A', "charset=utf-7; boundary=A"]  # fmt: skip
    for _ in range(125):
        body = "".join(
            f'--A\r\nContent-Disposition: form-data; name="{chance.choice(names)}"{chance.choice(files)}\r\n'
            f"{chance.choice(kinds)}\r\n{chance.choice(texts)}\r\n"
            for _ in range(chance.randint(1, 3))
        )
        media_type = f"multipart/form-data; {chance.choice(types)}"
        yield "POST", "/parts", (body + "--A--\r\n").encode(), (f"Content-Type: {media_type}",)


def is_right(name: str, text: str) -> bool:
    """Returns whether a value may reach a service under a declared name."""
    if name in ("limit", "n", "x_lim"):
        return text.lstrip("-").isdigit() and int(text) <= 10
    return {"sid": "/" not in text, "tenant": text == "mine", "name": text.replace("/", "a").isalpha() or text == ""}[
        name
    ]


DECLARED: Final = {
    "/c": {"cookies": {"sid", "n"}},
    "/h": {"headers": {"x_lim"}},
    "/s": {"query": {"limit", "tenant"}},
    "/form": {"form": {"limit", "name"}},
    "/parts": {"form": {"limit", "name"}},
}


def find_wrong(sent: Sent, read: dict[str, Any], services: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yields what a service reads of a forwarded request that the judge has not accepted, or that another reads
    otherwise."""
    path = sent[1].partition("?")[0]
    for place, names in DECLARED[path].items():
        for name in names:
            texts = {
                service: [v for n, v in seen[place] if n.lower() == name]
                for service, seen in services.items()
                if place in seen
            }
            mine = [v for n, v in read.get(place, ()) if n.lower() == name]
            if len(mine) > 1 or not all(is_right(name, text) for text in mine):
                yield f"{name} is {mine}"
            if len({tuple(unquote(text).strip('"') for text in each) for each in texts.values()}) > 1:
                yield f"{name} differs: {texts}"
    if path in ("/form", "/parts") and "files" in read:
        declared = ("limit", "name") if path == "/parts" else ("limit", "name", "doc")
        # Browsers send an empty `doc` if no file was chosen.
        if undeclared := [n for n, v in read["form"] if n not in declared and (n, v) != ("doc", "")]:
            yield f"undeclared {undeclared}"
        if unknown := [n for n in read["files"] if n != "doc"]:
            yield f"unknown files {unknown}"


# --- services that are played by rule ---------------------------------------------------------------------------------
Pairs = list[tuple[str, str]]


def register_as_php(pairs: Iterator[tuple[str, str]], *, first: bool = False) -> Pairs:
    """Folds names as PHP's `php_register_variable_ex` (main/php_variables.c) does. Leading blanks go, a NUL ends the
    name, `[` begins an index, `.` and a blank become `_`, and the last value counts (the first of a cookie)."""
    found: dict[str, str] = {}
    for name, value in pairs:
        plain = name.lstrip(" ").partition("\0")[0]
        outer, bracket, inner = plain.partition("[")
        folded = outer.replace(".", "_").replace(" ", "_")
        if bracket and "]" not in inner:
            folded += "_" + inner
        if folded and not (first and folded in found):
            found[folded] = f"[{value}]" if bracket and "]" in inner else value
    return list(found.items())


def split_pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split("&"):
        if part:
            name, _, value = part.partition("=")
            yield unquote_plus(name), unquote_plus(value)


def split_fields(body: str, media_type: str) -> Iterator[tuple[str, str]]:
    """The fields of a form, a multipart one as loosely as PHP and old servlet containers read it."""
    if "boundary=" not in media_type:
        yield from split_pairs(body)
        return
    boundary = re.split(r"[;,\s]", media_type.partition("boundary=")[2].strip('"'))[0].strip('"')
    for part in re.split(rf"(?:^|\r?\n)--{re.escape(boundary)}(?:--)?\r?\n?", body):
        head, _, content = part.partition("\r\n\r\n")
        named = re.search(r'[; ]name="?([^";\r\n]*)"?', head)
        if named is not None and "filename" not in head:
            yield named[1], content


def read_as_php(seen: Seen) -> dict[str, Pairs]:
    cookies = (part.partition("=")[::2] for part in (seen.header("cookie") or "").split(";"))
    body = seen.body.decode("utf-8", "replace")
    return {
        "cookies": register_as_php(((name.lstrip(), unquote(value)) for name, value in cookies), first=True),
        "query": register_as_php(split_pairs(seen.start.split()[1].partition("?")[2])),
        "form": register_as_php(split_fields(body, seen.header("content-type") or "")),
        "headers": read_as_cgi(seen),
    }


def read_as_cgi(seen: Seen) -> Pairs:
    """RFC 3875 section 4.1.18, as Apache's mod_cgi follows it; several lines are joined."""
    found: dict[str, list[str]] = {}
    for name, value in seen.headers:
        found.setdefault(re.sub(r"[^0-9A-Za-z]", "_", name), []).append(value)
    return [(name, ", ".join(values)) for name, values in found.items()]


def read_as_spring(seen: Seen) -> dict[str, Pairs]:
    """Merges query and form as servlets do; Spring's `WebDataBinder` takes `!name` for a default and `_name` for an
    unticked one, if the name itself is absent."""
    target, body = seen.start.split()[1], seen.body.decode("utf-8", "replace")
    pairs = [*split_pairs(target.partition("?")[2]), *split_fields(body, seen.header("content-type") or "")]
    names = {name for name, _ in pairs}
    pairs += [(name[1:], value) for name, value in pairs if name[:1] == "!" and name[1:] not in names]
    pairs += [(name[1:], "") for name, _ in pairs if name[:1] == "_" and name[1:] not in names]
    return {"query": pairs, "form": pairs}


RULES: Final[dict[str, Callable[[Seen], dict[str, Pairs]]]] = {"php": read_as_php, "spring": read_as_spring}


async def read_by_rule(requests: list[Sent], found: list[dict[str, tuple[int, bytes]]]) -> None:
    """Adds what services read that are played by rule."""
    async with tool(replies(answer("200 OK", b"{}"))) as server, served(SERVICE, server.url) as proxy:
        for index, (method, target, body, headers) in enumerate(requests):
            before = len(server.seen)
            status = (await ask(proxy, method, target, body, f"X-Conversation-Id: {index}", *headers)).status
            for name, read in RULES.items():
                seen = read(server.seen[-1]) if len(server.seen) > before else {}
                found[index][name] = status, json.dumps(seen).encode()


async def read_by_all(requests: list[Sent], ports: dict[str, int]) -> list[dict[str, tuple[int, bytes]]]:
    """For each request and each service: the status behind the proxy, and what the service read."""
    found: list[dict[str, tuple[int, bytes]]] = [{} for _ in requests]

    async def read_by(service: str, port: int) -> None:
        async with served(SERVICE, f"http://127.0.0.1:{port}") as proxy:
            for index, (method, target, body, headers) in enumerate(requests):
                seen = await ask(proxy, method, target, body, f"X-Conversation-Id: {index}", *headers)
                found[index][service] = seen.status, seen.body

    await asyncio.gather(*(read_by(service, port) for service, port in ports.items()), read_by_rule(requests, found))
    return found


async def test_every_service_reads_a_forwarded_request_as_it_was_validated() -> None:
    needs("web", "webnode", "readings")
    chance = random.Random(20261124)
    makers = (make_cookies, make_headers, make_queries, make_forms, make_parts)
    requests = list(dict.fromkeys(sent for make in makers for sent in make(chance)))
    with servers("web", "webnode", "readings") as ports:
        answers = await read_by_all(requests, ports)
    wrong, forwarded = [], 0
    for sent, statuses in zip(requests, answers, strict=True):
        if {status for status, _ in statuses.values()} <= {400, 415}:
            continue
        forwarded += 1
        services = {service: json.loads(body) for service, (status, body) in statuses.items() if status == 200}
        wrong += [
            f"{sent}: {service}: {why}" for service in services for why in find_wrong(sent, services[service], services)
        ]
        if len(services) < len(statuses) and 400 in {status for status, _ in statuses.values()}:
            wrong.append(f"{sent}: { ({service: status for service, (status, _) in statuses.items()}) }")
    assert not wrong, "\n".join(wrong)
    assert (True, True) == (len(requests) >= 500, forwarded >= 50)
