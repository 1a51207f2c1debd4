"""Expectations of users of other gateways, spelt as the page on access spells them: each row that no other test
loads."""

from __future__ import annotations

from tests.extensions.access.issuer import AUDIENCE, NOW, OK, ROUTE, Issuer, SetClock, describe_key, guarded
from tests.serving.proxied import proxied_by
from tests.serving.wire import replies, tool


async def test_keys_come_from_the_address_that_the_config_names() -> None:
    issuer = Issuer([describe_key("RS256")], url="https://login.example/realms/a")
    async with tool(issuer) as issuing, tool(replies(OK)) as server:
        named = f"{{issuer: '{issuer.url}', audience: ['{AUDIENCE}', other], jwks: '{issuing.url}/keys'}}"
        async with proxied_by(SetClock(), ROUTE, server.url, access=f"{{issuers: {{main: {named}}}}}") as proxy:
            tokens = (issuer.sign(), issuer.sign(aud="other"), issuer.sign(aud="a third"))
            seen = [await proxy.post("/weather", b'{"lat": 1}', f"Authorization: Bearer {token}") for token in tokens]

    assert ([200, 200, 401], ["/keys"]) == ([each.status for each in seen], issuer.asked)


async def test_an_issuer_may_have_its_own_leeway() -> None:
    async with guarded(issuer=", leeway: 5s") as there:
        seen = [await there.call(there.issuer.sign(exp=NOW - late)) for late in (4, 6)]

    assert [200, 401] == [each.status for each in seen]


async def test_serves_only_members_of_a_group() -> None:
    async with guarded(f"{ROUTE}    allow: [{{when: {{claims: {{groups: operators}}}}}}]\n") as there:
        groups = (["staff", "operators"], "operators", ["operators-of-others"], None)
        seen = [await there.call(there.issuer.sign(groups=each)) for each in groups]

    assert [200, 200, 403, 403] == [each.status for each in seen]
    assert 2 == len(there.server.seen)
