"""Reads the keys of `state:` that belong to `backend: redis`, with the URL of the store.

    redis://[user:password@]host[:port][/database]          one server; `rediss` with TLS
    redis+sentinel://[...@]host[:port],host[:port].../service[/database]
    redis+cluster://[...@]host[:port],host[:port]...
    redis+unix:///path/of/socket[?database=n]

`valkey` may replace `redis` everywhere (`valkeys` for `rediss`). User and password are percent-encoded (RFC 3986
section 3.2.1). A mistake never shows the URL, which may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from importlib.util import find_spec
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote

from proxy.config.files.masking import mask_url
from proxy.config.keys.kinds import DURATION, SAME_OWNER, SOME_TEXT, ConfigKey, choice, mapping, text
from proxy.config.model import UpstreamTls
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.plugin import Context, Files, read_seconds, read_upstream_tls, reveal


# --- the settings of the store ----------------------------------------------------------------------------------------
@value_class
class RedisSettings:
    """Address and credentials of the store. Timeouts are in seconds: for a new connection, and for one round trip.

    `topology` single: `hosts` has one entry, or `unix_socket` is set; sentinel: `hosts` are the sentinels, which know
    the primary by the name `service`; cluster: `hosts` are some of the nodes. `most_waiting` bounds the queue of
    operations; beyond it the store counts as away.
    """

    topology: Literal["single", "sentinel", "cluster"] = "single"
    hosts: tuple[tuple[str, int], ...] = (("127.0.0.1", 6379),)
    unix_socket: str = ""
    database: int = 0
    service: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    tls: UpstreamTls | None = None
    prefix: str = "toolproxy"
    connect_timeout: float = 0.1
    operation_timeout: float = 0.05
    most_waiting: int = 4096


# --- reads the keys of `state:` that belong to `backend ---------------------------------------------------------------
_SCHEME: Final = re.compile(r"(redis|valkey)(s?)(?:\+(sentinel|cluster|unix))?")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_PORTS: Final[Mapping[str, int]] = {"sentinel": 26379}
_PORT: Final = 6379
_FORM: Final = "write redis://host:port, redis+sentinel://host,host/service or redis+cluster://host,host"


class UrlError(ValueError):
    """A mistake in a URL; the message does not quote it."""


def parse_url(url: str) -> RedisSettings:
    """The store's address and credentials, and TLS where it uses it. Raises UrlError."""
    head, found, rest = url.partition("://")
    scheme = _SCHEME.fullmatch(head)
    if not found or scheme is None:
        raise UrlError("the url does not begin with redis://, rediss:// or one of their kinds")
    kind = scheme[3] or ""
    rest, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if set(options) - {"database"} or (options and kind != "unix"):
        raise UrlError("the url has a query that means nothing here")
    userinfo, _, place = rest.rpartition("@")
    user, _, password = userinfo.partition(":")
    authority, *path = place.split("/")
    tls = UpstreamTls() if scheme[2] and kind != "unix" else None
    shared = RedisSettings(username=unquote(user), password=unquote(password), tls=tls)
    if kind == "unix":
        if authority or not path or not any(path):
            raise UrlError("the url of a unix socket is redis+unix:///path/of/socket")
        socket = "/" + unquote("/".join(path))
        return replace(shared, hosts=(), unix_socket=socket, database=_read_database(options.get("database", "")))
    shared = replace(shared, hosts=tuple(_read_host(one, _PORTS.get(kind, _PORT)) for one in authority.split(",")))
    return _add_path(shared, kind, [unquote(part) for part in path])


def _add_path(shared: RedisSettings, kind: str, path: list[str]) -> RedisSettings:
    """Adds the part after the hosts: a service, a database, or nothing."""
    if kind == "sentinel":
        if not path or not path[0] or len(path) > 2:
            raise UrlError("the url of sentinels ends with the service's name: redis+sentinel://host,host/service")
        return replace(shared, topology="sentinel", service=path[0], database=_read_database("".join(path[1:])))
    if kind == "cluster":
        if any(path):
            raise UrlError("a cluster has no databases: the url ends with its hosts")
        return replace(shared, topology="cluster")
    if len(shared.hosts) > 1:
        raise UrlError("several hosts are a cluster or sentinels: write redis+cluster:// or redis+sentinel://")
    if len(path) > 1:
        raise UrlError("the url ends with the number of a database")
    return replace(shared, database=_read_database("".join(path)))


def _read_host(text: str, port: int) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if found is None:
        raise UrlError("the url's host or port cannot be read")
    number = int(found[2]) if found[2] else port
    if not 0 < number <= 65535:
        raise UrlError(f"{number} is not a port")
    return found[1].strip("[]"), number


def _read_database(text: str) -> int:
    if text and not re.fullmatch(r"[0-9]{1,4}", text):
        raise UrlError("the database is a number")
    return int(text or 0)


# --- the keys of `state` ----------------------------------------------------------------------------------------------
_FILE: Final = text(minLength=1, x_expects="the path of a file")
_TLS: Final = mapping(
    None,
    ConfigKey("ca", _FILE, "PEM file of the authorities to trust. Default: the system's."),
    ConfigKey("cert", _FILE, "PEM file of the certificate shown to the store."),
    ConfigKey("key", _FILE, "PEM file of its key. Default: in `cert`."),
)
_SENTINEL: Final = mapping(
    RedisSettings,
    ConfigKey("username", SOME_TEXT, "The sentinels' ACL user.", default=None, field="sentinel_username"),
    ConfigKey(
        "password",
        replace(SOME_TEXT, is_secret=True),
        "The sentinels' password. May hold `${ENV}` and `${file:/path}`.",
        default=None,
        field="sentinel_password",
    ),
    make=dict,
)
_TIMEOUTS: Final = mapping(
    RedisSettings,
    ConfigKey("connect", DURATION, "For a new connection.", field="connect_timeout"),
    ConfigKey("operation", DURATION, "For one round trip.", field="operation_timeout"),
    make=dict,
)
STATE: Final = mapping(
    RedisSettings,
    ConfigKey(
        "backend",
        choice("redis"),
        "`memory`: in this process. `redis`: in a Redis or Valkey shared by several processes (docs/scaling.md).",
        is_read=False,
    ),
    ConfigKey(
        "url",
        replace(text(minLength=1, x_expects="a url such as redis://host:6379"), is_secret=True),
        "The address of the store: `redis://`, `rediss://` (TLS), `redis+sentinel://`, `redis+cluster://` or "
        "`redis+unix://`; `valkey` works too. May hold `${ENV}` and `${file:/path}`.",
        is_read=False,
    ),
    ConfigKey(
        "prefix",
        text(pattern="^[A-Za-z0-9_.:-]{1,64}$", x_expects="up to 64 letters, digits and _ . : -"),
        "The beginning of every key's name. Proxies that share conversations share it.",
    ),
    ConfigKey(
        "timeouts",
        _TIMEOUTS,
        "Time limits of the store. Beyond them a call continues with the knowledge of this process.",
        field=SAME_OWNER,
    ),
    ConfigKey("tls", _TLS, "Certificates for a `rediss://` url.", is_read=False),
    ConfigKey("sentinel", _SENTINEL, "Login to the sentinels themselves, if they require it.", field=SAME_OWNER),
    make=dict,
)


def read_settings(context: Context, files: Files, written: Mapping[str, JsonValue]) -> RedisSettings | None:
    """Reads the keys of `state` about the store's address and connections; None if they have mistakes."""
    if find_spec("redis") is None:
        hint = "install it: pip install '.[redis]' in a clone"
        context.mistake(("state", "backend"), "the client library `redis` is not installed", hint)
    if "url" not in written:
        if not context.structure.has_mistake(("state", "url")):
            context.mistake(("state", "backend"), "`backend: redis` needs a url", "add `url: ${REDIS_URL}`")
        return None
    try:
        shared = parse_url(reveal(written["url"]))
    except UrlError as error:
        context.mistake(("state", "url"), str(error), _FORM)
        return None
    _check(context, shared, written)
    more: dict[str, Any] = STATE.read(written)
    if "tls" in written:  # the same keys as an upstream's; `_check` compares them with the URL's scheme
        more["tls"] = read_upstream_tls(context, files, ("state", "tls"), written["tls"], "https:") or UpstreamTls()
    return replace(shared, **more)


def _check(context: Context, shared: RedisSettings, written: Mapping[str, JsonValue]) -> None:
    if "tls" in written and shared.tls is None:
        context.mistake(("state", "tls"), "`tls` has no effect on this url", "write rediss://, or drop it", key=True)
    if "sentinel" in written and shared.topology != "sentinel":
        hint = "it is for redis+sentinel:// urls"
        context.mistake(("state", "sentinel"), "`sentinel` has no effect on this url", hint, key=True)
    for key in ("connect", "operation"):
        if read_seconds(written.get("timeouts", {}).get(key, 1)) <= 0:
            context.mistake(("state", "timeouts", key), "a timeout of 0 lets nothing through", "such as 50ms")
    for path in (("state", "url"), ("state", "sentinel", "password")):
        text = context.structure.entry(*path)
        if isinstance(text, str) and text == reveal(text) and (path[-1] == "password" or mask_url(text) != text):
            context.notes.append(f"{'.'.join(path)}: a password is in the config file; better write ${{NAME}}")
