"""`state:` of the config: urls of all kinds, what they must not be, and that no password of theirs is ever shown."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from proxy.config.files.secrets import restore_written
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.config.model import Config, StateConfig, UpstreamTls
from proxy.core.json.jsontext import dumps
from proxy.extensions.redis.redis_section import RedisSettings, UrlError, parse_url

SECRET = "planted-7b2f9c"
REDIS = (("h", 6379),)


def config_of(tmp_path: Path, state: str, **environ: str) -> Config:
    (tmp_path / "c.yaml").write_text(
        f"version: 1\nstate: {state}\nroutes: {{/a: {{upstream: none, tool: x, validation: off}}}}\n"
    )
    return load(tmp_path / "c.yaml", environ).config


def told(tmp_path: Path, state: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, state, **environ)
    return [mistake.message for mistake in caught.value.mistakes]


@pytest.mark.parametrize(
    ("url", "shared"),
    [
        ("redis://h", RedisSettings(hosts=REDIS)),
        ("valkey://h:1/2", RedisSettings(hosts=(("h", 1),), database=2)),
        ("rediss://u:p%40%2F@h", RedisSettings(hosts=REDIS, username="u", password="p@/", tls=UpstreamTls())),
        ("rediss://:p:q@[::1]:7", RedisSettings(hosts=(("::1", 7),), password="p:q", tls=UpstreamTls())),
        ("valkeys://h/", RedisSettings(hosts=REDIS, tls=UpstreamTls())),
        (
            "redis+sentinel://:p@a,b:1/tools/3",
            RedisSettings("sentinel", (("a", 26379), ("b", 1)), database=3, service="tools", password="p"),
        ),
        ("rediss+cluster://a:1,b", RedisSettings("cluster", (("a", 1), ("b", 6379)), tls=UpstreamTls())),
        ("redis+unix:///run/r.sock?database=4", RedisSettings(hosts=(), unix_socket="/run/r.sock", database=4)),
    ],
)
def test_parses_the_address_of_the_store_from_a_url(url: str, shared: RedisSettings) -> None:
    assert shared == parse_url(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://h", "does not begin with redis://"),
        ("h:6379", "does not begin with redis://"),
        ("redis://", "host or port cannot be read"),
        ("redis://h:99999", "99999 is not a port"),
        ("redis://h/x", "the database is a number"),
        ("redis://h/1/2", "ends with the number of a database"),
        ("redis://a,b", "several hosts are a cluster or sentinels"),
        ("redis://h?ssl=1", "a query that means nothing"),
        ("redis+sentinel://a,b", "ends with the service's name"),
        ("redis+cluster://a/1", "a cluster has no databases"),
        ("redis+unix://run/r.sock", "redis+unix:///path"),
    ],
)
def test_rejects_a_wrong_url_of_a_store_without_showing_it(tmp_path: Path, url: str, words: str) -> None:
    with pytest.raises(UrlError, match=re.escape(words)):
        parse_url(url)
    secret = url.replace("://", f"://user:{SECRET}@", 1)
    found = "\n".join(told(tmp_path, f'{{backend: redis, url: "{secret}"}}'))
    assert found
    assert SECRET not in found


def test_everything_a_config_says_of_the_store_reaches_it(tmp_path: Path) -> None:
    state = (
        "{backend: redis, url: '${STORE}', prefix: mine, max_keys: 9, timeouts: {connect: 1s, operation: 20ms},"
        " sentinel: {username: s, password: '${STORE}'}}"
    )
    made = config_of(tmp_path, state, STORE=f"rediss+sentinel://u:{SECRET}@a/tools").state
    assert (9, "redis") == (made.max_keys, made.backend)
    assert RedisSettings(
        "sentinel", (("a", 26379),), service="tools", username="u", password=SECRET,
        sentinel_username="s", sentinel_password=f"rediss+sentinel://u:{SECRET}@a/tools",
        tls=UpstreamTls(), prefix="mine", connect_timeout=1.0, operation_timeout=0.02,
    ) == made.shared  # fmt: skip


def test_the_url_may_be_unknown_with_config_only(tmp_path: Path) -> None:
    state = "state: {backend: redis, url: '${REDIS_URL}'}\nworkers: 2\n"
    routes = "routes: {/a: {upstream: none, tool: x, schema: {}}}\n"
    (tmp_path / "c.yaml").write_text(f"version: 1\n{state}{routes}")
    assert StateConfig("redis") == load(tmp_path / "c.yaml", {}, config_only=True).config.state


def test_the_defaults_of_a_shared_store_are_those_of_the_backend(tmp_path: Path) -> None:
    shared = config_of(tmp_path, "{backend: redis, url: 'redis://127.0.0.1'}").state.shared
    assert RedisSettings() == shared


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("{backend: redis}", "`backend: redis` needs a url"),
        ("{url: 'redis://h'}", "`url` has no effect on state in memory"),
        ("{backend: memory, prefix: x}", "`prefix` has no effect on state in memory"),
        ("{backend: redis, url: 'redis://h', tls: {}}", "`tls` has no effect on this url"),
        ("{backend: redis, url: 'redis://h', sentinel: {password: x}}", "`sentinel` has no effect on this url"),
        ("{backend: redis, url: 'redis://h', timeouts: {operation: 0}}", "a timeout of 0 lets nothing through"),
        ("{backend: redis, url: 'rediss://h', tls: {ca: no.pem}}", "cannot read no.pem: No such file or directory"),
        ("{backend: redis, url: 'redis://h', prefix: 'a*'}", "`prefix` expects up to 64 letters, digits and _ . : -"),
    ],
)
def test_rejects_a_meaningless_section(tmp_path: Path, state: str, words: str) -> None:
    found = told(tmp_path, state)
    assert 1 == len(found)
    assert words in found[0]


def test_a_missing_client_library_is_a_mistake_that_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    assert ["the client library `redis` is not installed"] == told(tmp_path, "{backend: redis, url: 'redis://h'}")


def test_no_dump_shows_a_password(tmp_path: Path) -> None:
    state = f"{{backend: redis, url: 'rediss+sentinel://u:{SECRET}@h/s', sentinel: {{password: {SECRET}}}}}"
    config = config_of(tmp_path, state)
    assert SECRET not in dumps(restore_written(config.written)).decode() + repr(config)
    assert 2 == sum("better write ${NAME}" in note for note in config.notes)
