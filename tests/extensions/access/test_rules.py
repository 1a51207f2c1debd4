"""Rules: who may call which tool with which arguments, and the answers to other calls."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from proxy.extensions.access.core.access_rules import (
    Identity,
    UnclearPathError,
    find_claim,
    find_scopes,
    fits_caller,
    list_readings,
)
from proxy.extensions.access.core.rule_schemas import close_schema
from proxy.extensions.access.core.settings import AccessRule
from tests.extensions.access.issuer import OK, guarded
from tests.serving.proxied import Proxied, code, proxied, told
from tests.serving.wire import Seen, replies, tool

READER, WRITER = "reader-token-0123456", "writer-token-0123456"


def hashed(token: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


AUTH = f"{{bearer: {{reader: '{hashed(READER)}', writer: '{hashed(WRITER)}'}}}}"
TOOLS = """{
  read_file: {schema: {type: object, properties: {path: {type: string}}, required: [path]}},
  write_file: {schema: {type: object, properties: {path: {type: string}, size: {type: integer}}, required: [path]}},
  delete_file: {schema: {type: object, properties: {secret_flag: {type: boolean}}, required: [secret_flag]}}
}"""
RULES = """[
  {when: {token: reader}, tools: [read_file], arguments: {properties: {path: {pattern: "^/data/"}}}},
  {when: {token: writer}, tools: ["*_file"]}
]"""
ROUTE = f"  - {{path: '/files/{{tool}}', upstream: tools, auth: {AUTH}, allow: {RULES}"


async def call(proxy: Proxied, name: str, arguments: Any, token: str = READER, path: str = "/files/") -> Seen:
    body = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    return await proxy.post(f"{path}{name}", body, f"Authorization: Bearer {token}")


@pytest.mark.parametrize("mode", ["", ", mode: report"])
async def test_a_call_is_sent_if_a_rule_allows_it_and_refused_if_none_does(mode: str) -> None:
    async with tool(replies(OK)) as server, proxied(f"{ROUTE}{mode}}}", server.url, tools=TOOLS) as proxy:
        assert 200 == (await call(proxy, "read_file", {"path": "/data/a"})).status
        assert 200 == (await call(proxy, "write_file", {"path": "/x"}, WRITER)).status
        sent = len(server.seen)
        for name, arguments in (
            ("write_file", {"path": "/data/a"}),
            ("delete_file", {"secret_flag": "wrong"}),
            ("read_file", {"path": "/etc/passwd"}),
        ):
            seen = await call(proxy, name, arguments)
            assert (403, "CALL_NOT_ALLOWED") == code(seen)
            error = told(seen)["error"]
            assert (False, "secret_flag" in json.dumps(told(seen))) == (error["retryable"], False)
            assert "This cannot be mended by another call" in json.dumps(told(seen))
        assert sent == len(server.seen)


@pytest.mark.parametrize(
    "body",
    [
        b"{not JSON",
        b'{"path": "/data/a", "path": "/etc/passwd"}',
        b'{"path": ["/data/a"]}',
        b'{"path": null}',
        b"{}",
        b"[]",
        b"",
        b'{"other": "/data/a"}',
        b'{"path": "/etc/passwd", "p\\u0061th": "/data/a"}',
        b'{"path": "/data/a", "Path": "/etc/passwd"}',
        b'\xff{"path": "/data/a"}',
    ],
)
@pytest.mark.parametrize("mode", ["", ", mode: report"])
async def test_does_not_send_a_call_that_cannot_be_validated(mode: str, body: bytes) -> None:
    async with tool(replies(OK)) as server, proxied(f"{ROUTE}{mode}}}", server.url, tools=TOOLS) as proxy:
        seen = await call(proxy, "read_file", body)
        assert (True, []) == (400 <= seen.status < 500, server.seen)


@pytest.mark.parametrize("mode", ["", ", mode: report"])
async def test_a_route_that_takes_no_query_takes_none_next_to_arguments_that_rules_check(mode: str) -> None:
    route = f"{ROUTE}, query: refuse{mode}}}"
    async with tool(replies(OK)) as server, proxied(route, server.url, tools=TOOLS) as proxy:
        seen = await call(proxy, "read_file?path=/etc/passwd", {"path": "/data/a"})
        assert (400, "BAD_REQUEST", []) == (seen.status, code(seen)[1], server.seen)


async def test_rules_check_arguments_as_they_will_be_sent() -> None:
    rules = '[{tools: [write_file], arguments: {properties: {size: {maximum: 10}, path: {const: "/a"}}}}]'
    route = f"  - {{path: '/files/{{tool}}', upstream: tools, allow: {rules}}}"
    async with tool(replies(OK)) as server, proxied(route, server.url, tools=TOOLS) as proxy:
        statuses = [
            (await call(proxy, "write_file", arguments)).status
            for arguments in (
                {"path": "/a", "size": "7"},
                {"path": "/a", "size": "70"},
                {"path": "/a"},
                {"path": "/a", "size": 10.0},
            )
        ]
        assert [200, 403, 403, 200] == statuses
        assert [{"path": "/a", "size": 7}, {"path": "/a", "size": 10.0}] == [
            json.loads(each.body) for each in server.seen
        ]


@pytest.mark.parametrize(
    "path",
    [
        "/data/../etc/passwd", "/data/..", "/data/%2e%2e/etc/passwd", "/data/%2E./x", "/data/%252e%252e/etc",
        "/data/%25252525252e./x", "/data\\..\\etc", "/data/..\\..\\etc", "/data/．．/etc", "/data/%ef%bc%8e%2e/etc",
        "/data/./../etc", "//data/../../etc", "/data/%c0%ae%c0%ae/etc", "/data/a%00/../b", "/data/\u0000", "data/a",
        "/database", "%2fdata/../x", "/data/％2e％2e/etc", "/data/%ef%bc%852e%ef%bc%852e/etc", "/data／..／etc",
        "/data/.\t./etc", "/data/.\r\n./etc", "/data/%0a../etc",
        # As one service reads them they lead below /data, as another one they lead elsewhere.
        "/data/../etc/%2e%2e/data/x", "/data/%2e%2e/etc/%252e%252e/data/x", "/data/../etc/．．/data/x",
        "/data/..;/etc", "/data/..;a=b/etc", "/data/.. /etc", "/data/..%20/..%3b/etc", "/data/.. ;x/etc",
        "/etc/..;/data/x",
        "/data/../etc/cron.d/a\\..\\..\\..\\data\\x", "/data/．．/etc/%2e%2e/data/x",
    ],
)  # fmt: skip
async def test_rules_check_a_path_with_its_dots_and_escapes_resolved(path: str) -> None:
    async with tool(replies(OK)) as server, proxied(f"{ROUTE}}}", server.url, tools=TOOLS) as proxy:
        assert ((403, "CALL_NOT_ALLOWED"), []) == (code(await call(proxy, "read_file", {"path": path})), server.seen)


def test_paths_are_resolved_as_services_resolve_them() -> None:
    cases = {
        "plain text, 100% sure": "plain text, 100% sure",
        "/a/b": "/a/b",
        "/a/b/": "/a/b/",
        "a/../../b": "../b",
        "/../../a": "/a",
        "/a//b/./c": "/a/b/c",
        "https://h.example/a/../b": "https://h.example/b",
        "https://h.example": "https://h.example",
        "file:///a/../../etc": "file:///etc",
        "C:\\a\\..\\b": "C:\\a\\..\\b",
        "..": "../",
        "/": "/",
        "and/or": "and/or",
        "50%25": "50%25",
        "%2fetc": "%2fetc",
    }
    assert cases == {text: list_readings(text)[0] for text in cases}
    for unclear in ("/a/%ff", "/a\0/b", "/a%00/b", "/%25252525252525252f"):
        with pytest.raises(UnclearPathError):
            list_readings(unclear)


@pytest.mark.large
def test_the_readings_of_one_call_are_bounded_however_many_texts_they_are_of() -> None:
    hostile = "/%252525％％2525\\%5c%255c\n%0a%250a"
    for value in (hostile * 20_000, [hostile * 1000] * 20, {"a": [hostile, *range(20_000)]}):
        with pytest.raises(UnclearPathError, match="it can be read in too many ways"):
            list_readings(value)
    assert 8 == len(list_readings("/a\\b\n％" * (2**20 // 7)))


def test_a_path_is_read_after_each_rewriting_that_a_service_may_do() -> None:
    cases = {
        "%2fetc": ["%2fetc", "/etc"],
        "50%25": ["50%25"],
        "/a/%252e%252e/b": ["/a/%252e%252e/b", "/a/%2e%2e/b", "/b"],
        "/a/％2e./b": ["/a/％2e./b", "/a/%2e./b", "/b"],
        "/a\\..\\b": ["/a\\..\\b", "/b"],
        "/a/.\n./b": ["/a/.\n./b", "/b"],
    }
    assert cases == {text: list_readings(text) for text in cases}
    several = {"a": "/x/%2e%2e/y", "b": ["/z", 1], "c": "text"}
    assert [{"a": "/x/%2e%2e/y", "b": ["/z", 1], "c": "text"}, {"a": "/y", "b": ["/z", 1], "c": "text"}] == list(
        list_readings(several)
    )


async def test_a_text_next_to_the_path_may_be_any() -> None:
    async with tool(replies(OK)) as server, proxied(f"{ROUTE}}}", server.url, tools=TOOLS) as proxy:
        sent = {"path": "/data/a", "content": "# A/B\n\n- 100% \\ ..\tor ../x\r\n"}
        assert (200, sent) == ((await call(proxy, "read_file", sent)).status, json.loads(server.seen[0].body))


async def test_lists_only_callable_names_for_an_unknown_tool() -> None:
    async with proxied(f"{ROUTE}}}", tools=TOOLS) as proxy:
        seen = [await call(proxy, "writefile_", {}, token) for token in (READER, WRITER)]
    assert [(404, "UNKNOWN_TOOL")] * 2 == list(map(code, seen))
    assert [(False, False), (True, False)] == [
        (b"write_file" in each.body, b"secret_flag" in each.body) for each in seen
    ]


async def test_a_caller_is_guided_to_its_own_tools() -> None:
    async with proxied(f"{ROUTE}}}", tools=TOOLS, guidance="{serve: /guidance}") as proxy:
        texts = [
            (await proxy.get("/guidance", f"Authorization: Bearer {token}")).body.decode() for token in (READER, WRITER)
        ]
        nobody = (await proxy.get("/guidance")).body.decode()
    shown = [[line for line in text.splitlines() if line.startswith("## ")] for text in (*texts, nobody)]
    assert [["## read_file"], ["## read_file", "## write_file", "## delete_file"], []] == shown


async def test_rules_check_a_function_behind_a_container_like_any_other() -> None:
    tools = (
        TOOLS.rstrip("} \n")
        + """}},
      files: {container: {source: plugin, expand: proxy, auto_expand: dispatch, functions: [
        {name: read_file, description: Reads}, {name: delete_file, description: Deletes}]}}
    }"""
    )
    rules = RULES.replace("[\n", "[{when: {token: reader}, tools: [files]},\n", 1)
    route = f"  - {{path: '/files/{{tool}}', upstream: tools, auth: {AUTH}, allow: {rules}}}"
    async with tool(replies(OK)) as server, proxied(route, server.url, tools=tools) as proxy:
        expanded = await call(proxy, "files", {})
        assert (200, True, False) == (
            expanded.status, b"read_file" in expanded.body, b"delete_file" in expanded.body,
        )  # fmt: skip
        dispatched = [
            await call(proxy, "files", {"function": name, "arguments": arguments})
            for name, arguments in (
                ("read_file", {"path": "/data/a"}),
                ("read_file", {"path": "/etc/a"}),
                ("delete_file", {"secret_flag": True}),
            )
        ]
        assert [200, 403] == [seen.status for seen in dispatched[:2]]
        assert (True, False) == (400 <= dispatched[2].status < 500, b"secret_flag" in dispatched[2].body)
        assert 1 == len(server.seen)


async def test_a_hook_answers_only_what_a_rule_allows() -> None:
    hooks = "[{use: 'tests.hooks.samples:Says', with: {answer: {kept: 1}}}]".replace("with:", "settings:")
    async with tool(replies(OK)) as server, proxied(f"{ROUTE}}}", server.url, tools=TOOLS, hooks=hooks) as proxy:
        seen = [
            await call(proxy, *one)
            for one in (("read_file", {"path": "/data/a"}), ("read_file", {"path": "/etc/a"}), ("delete_file", {}))
        ]
        assert ([200, 403, 403], []) == ([each.status for each in seen], server.seen)


async def test_scopes_claims_and_issuers_decide_by_the_token() -> None:
    route = """
  - path: /weather
    upstream: tools
    tool: weather
    schema: {type: object}
    jwt: {}
    allow:
      - {when: {scope: [files:write, files:read], issuer: main}}
      - {when: {claims: {realm_access.roles: [admin, root]}}}
      - {when: {claims: {level: 3}}}
"""
    cases: list[tuple[dict[str, Any], int]] = [
        ({"scope": "files:read other files:write"}, 200),
        ({"scp": ["files:read", "files:write"]}, 200),
        ({"scope": "files:read"}, 403),
        ({"scope": "files:readfiles:write"}, 403),
        ({"scope": ["files:read", 7]}, 403),
        ({"realm_access": {"roles": ["user", "admin"]}}, 200),
        ({"realm_access": {"roles": "root"}}, 200),
        ({"realm_access": "admin"}, 403),
        ({"realm_access": {"roles": {"admin": True}}}, 403),
        ({"level": 3}, 200),
        ({"level": "3"}, 403),
        ({"level": True}, 403),
        ({}, 403),
    ]
    async with guarded(route) as there:
        seen = [(claims, (await there.call(there.issuer.sign(**claims))).status) for claims, _ in cases]
        assert cases == seen


async def test_names_the_scope_that_a_token_lacks_for_a_call() -> None:
    route = """
  - path: /files/{tool}
    upstream: tools
    tools: [read_file, write_file]
    jwt: {}
    allow:
      - {when: {scope: "files:read"}, tools: [read_file], arguments: {properties: {path: {pattern: "^/data/"}}}}
      - {when: {scope: "files:write", claims: {level: 3}}, tools: [write_file]}
"""
    at = 'resource_metadata="https://p.example/.well-known/oauth-protected-resource/files"'
    async with guarded(route, access=", url: 'https://p.example'", tools=TOOLS) as there:

        async def ask(name: str, path: str, **claims: Any) -> tuple[int, str]:
            body = json.dumps({"path": path}).encode()
            seen = await there.call(there.issuer.sign(**claims), body=body, path=f"/files/{name}")
            return seen.status, seen.header("www-authenticate") or ""

        challenge = 'Bearer error="insufficient_scope", scope="files:read", ' + at
        assert (403, challenge) == await ask("read_file", "/data/a", scope="other")
        assert (403, "") == await ask("read_file", "/etc/a", scope="files:read")
        assert (403, "") == await ask("write_file", "/data/a", scope="files:read")
        raised = await ask("write_file", "/data/a", scope="files:read", level=3)
        assert (403, challenge.replace(":read", ":write")) == raised
        none = await there.call("x.y.z", body=b"{}", path="/files/read_file")
        assert (401, True) == (none.status, f'scope="files:read", {at}' in (none.header("www-authenticate") or ""))
        shown = await there.proxy.get("/.well-known/oauth-protected-resource/files")
        described = json.loads(shown.body)
    assert (200, "https://p.example/files") == (shown.status, described["resource"])
    assert ["files:read", "files:write"] == described["scopes_supported"]


async def test_a_relayed_route_asks_for_a_rule_before_the_body() -> None:
    route = """
  - {path: /relay, methods: [GET, POST], upstream: tools, passthrough: true, jwt: {}, allow: [{when: {scope: relay}}]}
"""
    async with guarded(route) as there:
        seen = [await there.call(there.issuer.sign(scope=scope), path="/relay") for scope in ("relay", "other")]
        assert ([200, 403], 1) == ([each.status for each in seen], len(there.server.seen))


async def test_a_route_without_its_own_rules_has_those_of_the_defaults() -> None:
    routes = """
  - {path: /a, upstream: tools, tool: a, schema: {type: object}}
  - {path: /b, upstream: tools, tool: b, schema: {type: object}, allow: off}
"""
    async with tool(replies(OK)) as server, proxied(routes, server.url, defaults="{allow: [{tools: [b]}]}") as proxy:
        assert [403, 200] == [(await proxy.post(path, b"{}")).status for path in ("/a", "/b")]


def test_a_condition_that_cannot_be_evaluated_never_holds() -> None:
    caller = Identity(token="ci", claims={"a.b": 1, "c": {"d": [True]}}, certificate=frozenset({"DNS:x.svc"}))
    holds = {
        True: [AccessRule("r"), AccessRule("r", tokens=("ci",)), AccessRule("r", claims={"a.b": (1,)}),
               AccessRule("r", claims={"c.d": (True,)}), AccessRule("r", certificates=("DNS:*.svc",))],
        False: [AccessRule("r", tokens=("CI",)), AccessRule("r", issuers=("main",)), AccessRule("r", scopes=("s",)),
                AccessRule("r", claims={"a": (1,)}), AccessRule("r", claims={"c.d": (1,)}),
                AccessRule("r", claims={"c.d.e": (1,)}), AccessRule("r", certificates=("CN:*",)),
                AccessRule("r", tokens=("ci",), scopes=("s",))],
    }  # fmt: skip
    for expected, rules in holds.items():
        assert [expected] * len(rules) == [fits_caller(rule, caller) for rule in rules]
    assert frozenset({"a", "b", "c"}) == find_scopes({"scope": "a  b", "scp": ["c", 1]})
    assert [True] == find_claim({"c": {"d": [True]}}, "c.d")


def test_a_schema_of_a_rule_wants_what_it_names() -> None:
    written = {"properties": {"a": {"pattern": "x"}, "b": {"properties": {"c": {"minimum": 1}}}, "d": {"enum": [1]}}}
    assert {
        "type": ["object"],
        "required": ["a", "b", "d"],
        "properties": {
            "a": {"pattern": "x", "type": ["string"]},
            "b": {"properties": {"c": {"minimum": 1, "type": ["number"]}}, "required": ["c"], "type": ["object"]},
            "d": {"enum": [1]},
        },
    } == close_schema(written)
