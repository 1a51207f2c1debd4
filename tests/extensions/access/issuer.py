"""An issuer of tokens on loopback, with real keys: discovery, JWKS, and tokens as it would sign them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.serving.proxied import Proxied, proxied_by
from tests.serving.wire import JSON_TYPE, Seen, Tool, answer, replies, tool

OK = answer("200 OK", b'{"ok": true}', JSON_TYPE)
AUDIENCE = "https://tools.example"
# When the clock of the tests begins, in seconds since the epoch.
NOW = 1_800_000_000.0


@dataclass
class SetClock:
    """Implements `Clock`: its time moves only when a test moves it."""

    at: float = 1000.0

    def now(self) -> float:
        """Seconds on a monotonic clock."""
        return self.at

    def wall(self) -> float:
        """Seconds since the epoch."""
        return NOW + self.at - 1000.0


@cache
def make_key(kind: str, name: str = "first") -> Any:
    """A private key; made once, because RSA keys take a moment."""
    match kind:
        case "RS256" | "RS512" | "PS256":
            return rsa.generate_private_key(65537, 2048)
        case "weak":
            return rsa.generate_private_key(65537, 1024)  # noqa: S505 - shown to be refused
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def describe_key(kind: str, name: str = "first", **more: Any) -> dict[str, Any]:
    """A public key as a JWKS has it."""
    public = make_key(kind, name).public_key()
    algorithm: Any = ECAlgorithm if kind == "ES256" else OKPAlgorithm if kind == "EdDSA" else RSAAlgorithm
    described: dict[str, Any] = algorithm.to_jwk(public, as_dict=True)
    described.pop("key_ops", None)
    return {**described, "kid": f"{kind}-{name}", "use": "sig", **more}


@dataclass
class Issuer:
    """Serves `keys`; `asked` has the paths that were asked for. With a `status` it answers with only that."""

    keys: list[dict[str, Any]]
    status: str = "200 OK"
    asked: list[str] = field(default_factory=list)
    url: str = ""
    discovery: dict[str, Any] = field(default_factory=dict)

    async def __call__(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        path = seen.start.split(" ")[1]
        self.asked.append(path)
        body: dict[str, Any] = {"keys": self.keys}
        if path != "/keys":
            body = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.discovery}
        writer.write(answer(self.status, json.dumps(body).encode(), JSON_TYPE))
        await writer.drain()

    def sign(
        self, kind: str = "RS256", name: str = "first", header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """A token as this issuer signs it; a claim of None is left out."""
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "exp": NOW + 300, "iat": NOW - 5}
        said = {key: value for key, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(said, make_key(kind, name), kind, {"kid": f"{kind}-{name}", **(header or {})})


@dataclass
class Guarded:
    """A proxy whose route takes the tokens of an issuer, and the tool behind it."""

    proxy: Proxied
    issuer: Issuer
    clock: SetClock
    server: Tool

    async def call(self, token: str, *headers: str, body: bytes = b'{"lat": 1}', path: str = "/weather") -> Seen:
        """Posts a call with a token."""
        return await self.proxy.post(path, body, f"Authorization: Bearer {token}", *headers)

    @property
    def fetches(self) -> int:
        """Returns how often the keys were fetched."""
        return self.issuer.asked.count("/keys")


ROUTE = """
  - path: /weather
    upstream: tools
    tool: weather
    schema: {type: object, properties: {lat: {type: number}}, required: [lat]}
    jwt: {}
"""


@contextlib.asynccontextmanager
async def guarded(
    routes: str = ROUTE, issuer: str = "", access: str = "", script: Any = None, **keys: str
) -> AsyncIterator[Guarded]:
    """A proxy in front of a tool. `issuer` are further keys of the issuer, `access` of the section."""
    issues, clock = Issuer([describe_key("RS256"), describe_key("ES256")]), SetClock()
    async with tool(issues) as issuing, tool(script or replies(OK)) as server:
        issues.url = issuing.url
        section = f"{{issuers: {{main: {{issuer: '{issues.url}', audience: '{AUDIENCE}'{issuer}}}}}{access}}}"
        async with proxied_by(clock, routes, server.url, access=section, **keys) as proxy:
            yield Guarded(proxy, issues, clock, server)
