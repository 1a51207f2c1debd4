"""Signed tokens, made with real keys and sent over real sockets: which count, and the answers to their clients."""

from __future__ import annotations

import asyncio
import base64
import gc
import hashlib
import hmac
import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from proxy.extensions.access.signed_tokens import MAX_TOKEN
from proxy.server.connection import Connection
from tests.extensions.access.issuer import AUDIENCE, NOW, ROUTE, Guarded, Issuer, describe_key, guarded, make_key
from tests.serving.proxied import code
from tests.serving.wire import JSON_TYPE, Seen, answer, replies, tool
from tests.steady import until

REALM = 'Bearer realm="toolcall-proxy"'


def encode(value: Any) -> str:
    """A part of a token by hand."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def refused(seen: Seen) -> str:
    """Returns why a token was refused, as the challenge says it."""
    assert (401, "TOKEN_REQUIRED") == code(seen)
    challenge = seen.header("www-authenticate") or ""
    start = f'{REALM}, error="invalid_token", error_description="'
    assert challenge.startswith(start)
    return challenge.removeprefix(start).removesuffix('"')


# --- tokens that count ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["RS256", "ES256"])
async def test_a_signed_token_opens_the_route_and_ends_here(kind: str) -> None:
    async with guarded() as there:
        seen = await there.call(there.issuer.sign(kind))
        assert (200, None) == (seen.status, there.server.seen[0].header("authorization"))
        assert ["/.well-known/openid-configuration", "/keys"] == there.issuer.asked


async def test_other_algorithms_count_if_the_config_names_them() -> None:
    async with guarded(issuer=", algorithms: [EdDSA, PS256]") as there:
        there.issuer.keys = [describe_key("EdDSA"), describe_key("PS256")]
        seen = [await there.call(there.issuer.sign(kind)) for kind in ("EdDSA", "PS256", "RS256")]
    assert [200, 200, 401] == [each.status for each in seen]


async def test_a_token_of_keycloaks_form_counts() -> None:
    claims: dict[str, Any] = {
        "aud": ["account", AUDIENCE], "azp": "agent", "typ": "Bearer", "scope": "openid profile", "jti": "1-2",
        "realm_access": {"roles": ["user"]}, "preferred_username": "ada", "auth_time": NOW - 9,
    }  # fmt: skip
    async with guarded() as there:
        assert 200 == (await there.call(there.issuer.sign(header={"typ": "JWT"}, **claims))).status


async def test_forwards_a_token_if_the_route_says_so_and_never_with_the_upstreams_own() -> None:
    own = "headers: {set: {authorization: Bearer of-the-upstream}}"
    for more, expected in (("jwt: {forward: on}", "Bearer {}"), (f"jwt: {{}}\n    {own}", "Bearer of-the-upstream")):
        async with guarded(ROUTE.replace("jwt: {}", more)) as there:
            token = there.issuer.sign()
            await there.call(token)
            sent = [value for name, value in there.server.seen[0].headers if name == "authorization"]
            assert [expected.format(token)] == sent


async def test_a_static_token_counts_next_to_signed_ones() -> None:
    digest = hashlib.sha256(b"static-token-0123456").hexdigest()
    async with guarded(f"{ROUTE}    auth: {{bearer: {{ci: 'sha256:{digest}'}}}}\n") as there:
        seen = [await there.call(token) for token in ("static-token-0123456", there.issuer.sign(), "neither")]
    assert [200, 200, 401] == [each.status for each in seen]


# --- tokens that do not -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW - 31}, "the token has expired"),
        ({"exp": None}, "the claim 'exp' is missing"),
        ({"exp": "soon"}, "a time in the token is not a number"),
        ({"exp": True}, "a time in the token is not a number"),
        ({"exp": float("nan")}, "a time in the token is not a number"),
        ({"exp": 10**400}, "a time in the token is not a number"),
        ({"nbf": NOW + 31}, "the token is not valid yet"),
        ({"aud": "https://other.example"}, "the audience is another one"),
        ({"aud": None}, "the claim 'aud' is missing"),
        ({"aud": []}, "the claim 'aud' is missing"),
        ({"aud": {"a": AUDIENCE}}, "the audience is another one"),
        ({"iss": "https://other.example"}, "the issuer is not known here"),
        ({"iss": None}, "the issuer is not known here"),
        ({"tenant": None}, "the claim 'tenant' is missing"),
    ],
)
async def test_a_token_with_other_claims_does_not_count(claims: dict[str, Any], reason: str) -> None:
    async with guarded(issuer=", required: tenant") as there:
        seen = await there.call(there.issuer.sign(**{"tenant": "a", **claims}))
        assert (reason, []) == (refused(seen), there.server.seen)


async def test_the_leeway_counts_at_both_ends() -> None:
    async with guarded() as there:
        seen = [await there.call(there.issuer.sign(exp=NOW - 29)), await there.call(there.issuer.sign(nbf=NOW + 29))]
    assert [200, 200] == [each.status for each in seen]


async def test_a_token_that_counted_before_ends_with_its_time() -> None:
    async with guarded() as there:
        token = there.issuer.sign(exp=NOW + 10)
        assert 200 == (await there.call(token)).status
        there.clock.at += 45
        assert "the token has expired" == refused(await there.call(token))


@pytest.mark.parametrize(
    "token", ["x", "a.b.c", "..", "a" * (MAX_TOKEN + 1), "e30.e30.e30", f"{encode({'alg': 'none'})}.e30."]
)
async def test_rejects_a_malformed_token_without_fetching_keys(token: str) -> None:
    async with guarded() as there:
        assert 401 == (await there.call(token)).status
        assert ([], []) == (there.issuer.asked, there.server.seen)


def forge(there: Guarded, header: dict[str, Any], key: bytes, digest: str = "sha256") -> str:
    """A token signed with a shared secret by hand: no library does that with a public key."""
    claims = {"iss": there.issuer.url, "aud": AUDIENCE, "sub": "eve", "exp": NOW + 300}
    text = f"{encode(header)}.{encode(claims)}"
    return f"{text}.{encode(hmac.new(key, text.encode(), digest).digest())}"


@pytest.mark.parametrize("form", ["pem", "der", "jwk", "modulus", "empty"])
async def test_the_public_key_is_no_shared_secret(form: str) -> None:
    public = make_key("RS256").public_key()
    secret = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(describe_key("RS256")).encode(),
        "modulus": describe_key("RS256")["n"].encode(),
        "empty": b"",
    }[form]
    async with guarded() as there:
        assert 200 == (await there.call(there.issuer.sign())).status
        for name in ("HS256", "hs256", "RS256"):
            seen = await there.call(forge(there, {"alg": name, "kid": "RS256-first", "typ": "JWT"}, secret))
            assert 401 == seen.status
        assert 1 == len(there.server.seen)


async def test_a_token_without_a_signature_never_counts() -> None:
    async with guarded() as there:
        head, claims, _ = there.issuer.sign().split(".")
        for name in ("none", "None", "NONE", "nOnE", "", None):
            bare = encode({"alg": name, "kid": "RS256-first"})
            assert [401, 401] == [(await there.call(f"{one}.{claims}.")).status for one in (bare, head)]
        assert [] == there.server.seen


async def test_a_key_in_the_token_itself_is_not_looked_at() -> None:
    async with guarded() as there:
        own = {"jwk": describe_key("RS256", "eve"), "jku": f"{there.issuer.url}/eve", "x5u": f"{there.issuer.url}/eve"}
        for key_id in ("RS256-first", "RS256-eve", "../../keys", "' OR 1=1", "/dev/null", ""):
            token = there.issuer.sign("RS256", "eve", header={**own, "kid": key_id})
            assert 401 == (await there.call(token)).status
        assert "/eve" not in there.issuer.asked


async def test_a_critical_extension_is_refused() -> None:
    async with guarded() as there:
        critical: tuple[dict[str, Any], ...] = ({"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": True})
        for header in critical:
            assert 401 == (await there.call(there.issuer.sign(header=header))).status
        assert [] == there.server.seen


async def test_a_changed_token_does_not_count() -> None:
    async with guarded() as there:
        head, claims, signature = there.issuer.sign().split(".")
        told = json.loads(base64.urlsafe_b64decode(claims + "=="))
        forged = f"{head}.{encode({**told, 'sub': 'eve'})}.{signature}"
        assert "the signature or a claim is not valid" == refused(await there.call(forged))


async def test_a_weak_key_signs_nothing() -> None:
    async with guarded() as there:
        there.issuer.keys = [describe_key("weak", alg="RS256", kid="RS256-first")]
        assert 401 == (await there.call(there.issuer.sign())).status


async def test_only_the_issuers_that_a_route_names_count() -> None:
    routes = ROUTE + ROUTE.replace("/weather", "/other").replace("jwt: {}", "jwt: {issuers: [second]}")
    second = "second: {issuer: 'https://second.example', audience: x}"
    async with guarded(routes, issuer=f"}}, {second[:-1]}") as there:
        token = there.issuer.sign()
        seen = [await there.call(token), await there.call(token, path="/other")]
        assert 200 == seen[0].status
        assert "the issuer is not one of this route" == refused(seen[1])


async def test_of_several_issuers_each_signs_for_itself() -> None:
    second = Issuer([describe_key("RS256", "second")])
    async with tool(second) as issuing:
        second.url = issuing.url
        async with guarded(issuer=f"}}, second: {{issuer: '{second.url}', audience: '{AUDIENCE}'") as there:
            main = there.issuer
            tokens = (main.sign(), second.sign(name="second"), second.sign(), main.sign(name="second"))
            assert [200, 200, 401, 401] == [(await there.call(token)).status for token in tokens]


@pytest.mark.parametrize(
    ("sent", "challenge"),
    [
        ((), REALM),
        (("Authorization: Basic YTpi",), f'{REALM}, error="invalid_request"'),
        (("Authorization: Bearer a.b.c",) * 2, f'{REALM}, error="invalid_request"'),
    ],
)
async def test_challenges_a_request_without_exactly_one_token(sent: tuple[str, ...], challenge: str) -> None:
    async with guarded() as there:
        seen = await there.proxy.post("/weather", b"{not even JSON", *sent)
        in_query = await there.proxy.post(f"/weather?access_token={there.issuer.sign()}", b'{"lat": 1}')
        assert ((401, "TOKEN_REQUIRED"), challenge) == (code(seen), seen.header("www-authenticate"))
        assert (401, []) == (in_query.status, there.server.seen)


# --- keys -------------------------------------------------------------------------------------------------------------
async def test_a_new_key_is_found_by_its_first_token_and_an_old_one_ends() -> None:
    async with guarded() as there:
        old = there.issuer.sign()
        assert 200 == (await there.call(old)).status
        there.issuer.keys = [describe_key("RS256", "second")]
        there.clock.at += 11
        seen = [await there.call(token) for token in (there.issuer.sign("RS256", "second"), old)]
        assert ([200, 401], 2) == ([each.status for each in seen], there.fetches)


async def test_reads_keys_from_the_configured_url_and_follows_no_redirect() -> None:
    keys = json.dumps({"keys": [describe_key("RS256")]}).encode()
    found, elsewhere = answer("200 OK", keys, JSON_TYPE), answer("302 Found", b"", "Location: /keys")
    for told, expected in ((found, 200), (elsewhere, 503)):
        async with tool(replies(told)) as publishing, guarded(issuer=f", jwks: '{publishing.url}/own'") as there:
            assert expected == (await there.call(there.issuer.sign())).status
            assert (["GET /own HTTP/1.1"], []) == ([seen.start for seen in publishing.seen], there.issuer.asked)


@pytest.mark.large
async def test_a_thousand_unknown_keys_cost_one_request_in_ten_seconds() -> None:
    async with guarded() as there:
        token = there.issuer.sign()
        assert 200 == (await there.call(token)).status
        for each in range(1000):
            seen = await there.call(there.issuer.sign("ES256", header={"kid": f"unknown-{each}"}))
            assert 401 == seen.status
        assert 1 == there.fetches
        there.clock.at += 10
        for each in range(20):
            await there.call(there.issuer.sign("ES256", header={"kid": f"new-{each}"}))
        assert (2, 200) == (there.fetches, (await there.call(token)).status)


async def test_fetches_keys_again_in_the_background() -> None:
    async with guarded() as there:
        token = there.issuer.sign()
        await there.call(token)
        there.clock.at += 200
        there.issuer.status = "500 Internal Server Error"
        there.clock.at += 90
        assert 200 == (await there.call(token)).status
        there.clock.at += 400
        token = there.issuer.sign(exp=NOW + 5000)
        seen = [await there.call(token) for _ in range(5)]
        assert [200] * 5 == [each.status for each in seen]
        lines = there.proxy.log.getvalue()
        assert 1 == lines.count("Keys of an issuer cannot be fetched")


async def test_keys_that_cannot_be_fetched_mean_503_and_never_a_call() -> None:
    async with guarded() as there:
        there.issuer.status = "500 Internal Server Error"
        seen = [await there.call(there.issuer.sign()) for _ in range(30)]
        assert {(503, "TOKEN_UNCHECKED")} == set(map(code, seen))
        assert "10" == seen[-1].header("retry-after")
        assert 1 == len(there.issuer.asked)
        there.issuer.status = "200 OK"
        there.clock.at += 10
        assert 200 == (await there.call(there.issuer.sign())).status
        assert 1 == len(there.server.seen)


async def test_an_answer_without_a_usable_key_is_a_failed_fetch_and_another_key_withdraws_the_old_one() -> None:
    async with guarded(issuer=", max_age: 1h") as there:
        token = there.issuer.sign(exp=NOW + 99_999)
        assert 200 == (await there.call(token)).status
        for keys in ([], [describe_key("RS256", use="enc")], [describe_key("EdDSA")]):
            there.issuer.keys = keys
            there.clock.at += 601
            unknown = there.issuer.sign(header={"kid": "unknown"})
            assert [200, 401, 200] == [(await there.call(each)).status for each in (token, unknown, token)]
        assert (4, 1) == (there.fetches, there.proxy.log.getvalue().count("no usable key is among its keys"))
        there.issuer.keys = [describe_key("RS256", "second")]
        there.clock.at += 601
        assert [200, 200] == [
            (await there.call(each)).status for each in (token, there.issuer.sign("RS256", "second", exp=NOW + 99_999))
        ]
        assert 401 == (await there.call(token)).status


async def test_an_issuer_without_a_usable_key_is_503_once_its_old_keys_are_too_old() -> None:
    async with guarded(issuer=", max_age: 1h") as there:
        token = there.issuer.sign(exp=NOW + 99_999)
        assert 200 == (await there.call(token)).status
        there.issuer.keys = []
        there.clock.at += 3601
        assert [(503, "TOKEN_UNCHECKED")] * 2 == [code(await there.call(token)) for _ in range(2)]


async def test_keys_of_an_issuer_that_stays_away_end_with_their_age() -> None:
    async with guarded(issuer=", max_age: 1h") as there:
        token = there.issuer.sign(exp=NOW + 99_999)
        assert 200 == (await there.call(token)).status
        there.issuer.status = "500 Internal Server Error"
        there.clock.at += 3601
        assert [(503, "TOKEN_UNCHECKED")] * 2 == [code(await there.call(token)) for _ in range(2)]


@pytest.mark.parametrize(
    "discovery",
    [{"issuer": "https://other.example"}, {"jwks_uri": None}, {"jwks_uri": "file:///etc/passwd"}, {"jwks_uri": 7}],
)
async def test_a_discovery_document_that_says_something_else_is_not_followed(discovery: dict[str, Any]) -> None:
    async with guarded() as there:
        there.issuer.discovery = discovery
        assert 503 == (await there.call(there.issuer.sign())).status


async def test_shared_secrets_and_private_or_foreign_keys_among_the_keys_are_left_out() -> None:
    async with guarded() as there:
        secret = {"kty": "oct", "k": encode(b"s" * 64), "kid": "RS256-first", "alg": "HS256"}
        there.issuer.keys = [secret, describe_key("RS256", use="enc"), describe_key("EdDSA"), "no key", {}]  # type: ignore[list-item]
        seen = await there.call(there.issuer.sign())
        assert (503, []) == (seen.status, there.server.seen)


# --- what a page of the operator or the log shows ---------------------------------------------------------------------
async def test_logs_no_claim() -> None:
    async with guarded() as there:
        await there.call(there.issuer.sign(sub="secret-subject", email="ada@example.com"))
        await there.call(there.issuer.sign(sub="secret-subject", exp=NOW - 999))
        text = there.proxy.log.getvalue()
    assert (False, False, 2) == ("secret-subject" in text, "ada@" in text, len(there.proxy.lines()))


async def test_a_rate_by_caller_counts_the_subject_of_a_signed_token() -> None:
    async with guarded(f"{ROUTE}    limits: {{rate: {{calls: 1, per: 1h, by: caller}}}}\n") as there:
        seen = [
            await there.call(there.issuer.sign(sub=sub, jti=jti)) for sub, jti in (("a", "1"), ("a", "2"), ("b", "3"))
        ]
        assert [200, 429, 200] == [each.status for each in seen]


# --- clients that do not wait -----------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("error")
async def test_a_client_that_goes_before_its_token_is_looked_at_leaves_nothing_unawaited() -> None:
    async with guarded() as there:
        listener = there.proxy.serving.ports[0].listener
        begin = listener.service.begin
        assert begin is not None

        def begin_and_lose(message: Any, content: Any, client: Connection) -> None:
            assert client.link is not None
            client.link.abort()  # as if the loop had heard of the end in the same turn
            begin(message, content, client)

        listener.service = replace(listener.service, begin=begin_and_lose)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await there.call(there.issuer.sign())
        await until(there.proxy.lines)
        gc.collect()
        assert ("client_gone", 0) == (there.proxy.lines()[-1]["outcome"], there.proxy.serving.handler.inflight)
