"""What reaches aiohttp, FastAPI, Flask, Go's net/http and express through the proxy is read by all of them as it was
judged: every spelling of a cookie, a query, a form and a multipart body that somebody once read in two ways, and 600
that are made of the same pieces."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

import pytest

from tests.extensions.operations.served import ask, served
from tests.extensions.operations.test_one_reading import SERVICE
from tests.parties.environment import needs, servers

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
    names = ["limit", "limit", "name", "Limit", "limit[]", "doc", "admin", "name[a]", "limit."]
    values = ["5", "999", "a/b", "A", "5;limit=999", "a%00", "a+b", "%E4", "a\t"]
    for _ in range(75):
        target = chance.choice(["/form", "/form", "/form?limit=9", "/form?x=1"])
        yield "POST", target, make_pairs(chance, names, values, ["&", "&", ";"]).encode(), (FORM,)


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
    """Whether a value may reach a service under a declared name."""
    if name in ("limit", "n"):
        return text.lstrip("-").isdigit() and int(text) <= 10
    return {"sid": "/" not in text, "tenant": text == "mine", "name": text.replace("/", "a").isalpha() or text == ""}[
        name
    ]


DECLARED: Final = {
    "/c": {"cookies": {"sid", "n"}},
    "/s": {"query": {"limit", "tenant"}},
    "/form": {"form": {"limit", "name"}},
    "/parts": {"form": {"limit", "name"}},
}


def find_wrong(sent: Sent, read: dict[str, Any], services: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What a service reads of a forwarded request that the judge has not accepted, or that another reads otherwise."""
    path = sent[1].partition("?")[0]
    for place, names in DECLARED[path].items():
        for name in names:
            texts = {service: [v for n, v in seen[place] if n.lower() == name] for service, seen in services.items()}
            mine = [v for n, v in read[place] if n.lower() == name]
            if len(mine) > 1 or not all(is_right(name, text) for text in mine):
                yield f"{name} is {mine}"
            if len({tuple(map(unquote, each)) for each in texts.values()}) > 1:
                yield f"{name} differs: {texts}"
    if path in ("/form", "/parts"):
        if undeclared := [n for n, _ in read["form"] if n not in ("limit", "name")]:
            yield f"undeclared {undeclared}"
        if unknown := [n for n in read["files"] if n != "doc"]:
            yield f"unknown files {unknown}"


async def read_by_all(requests: list[Sent], ports: dict[str, int]) -> list[dict[str, tuple[int, bytes]]]:
    """For each request and each service: the status behind the proxy, and what the service read."""
    found: list[dict[str, tuple[int, bytes]]] = [{} for _ in requests]

    async def read_by(service: str, port: int) -> None:
        async with served(SERVICE, f"http://127.0.0.1:{port}") as proxy:
            for index, (method, target, body, headers) in enumerate(requests):
                seen = await ask(proxy, method, target, body, f"X-Conversation-Id: {index}", *headers)
                found[index][service] = seen.status, seen.body

    await asyncio.gather(*(read_by(service, port) for service, port in ports.items()))
    return found


async def test_what_is_forwarded_is_read_by_every_service_as_it_was_judged() -> None:
    needs("web", "webnode", "readings")
    chance = random.Random(20261124)
    makers = (make_cookies, make_queries, make_forms, make_parts)
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
