"""A URL in a dump of the config keeps its references, and loses its passwords."""

from __future__ import annotations

import pytest

from proxy.config.files.masking import mask_url, may_hold_secret, redact_config
from proxy.config.keys.section_keys import CONFIG


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("redis://h:1", "redis://h:1"),
        ("redis://user:pw@h", "redis://user:***@h"),
        ("redis://:p@w:x@h", "redis://:***@h"),
        ("redis://token@h", "redis://***@h"),
        ("redis://u:${PW}@h", "redis://u:${PW}@h"),
        ("redis://u:a${PW}b@h", "redis://u:***@h"),
        ("${REDIS_URL}", "${REDIS_URL}"),
    ],
)
def test_a_dump_shows_what_is_a_reference_and_nothing_that_is_a_password(written: str, shown: str) -> None:
    assert shown == mask_url(written)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("http://h/mcp?key=s3cret&project=a", "http://h/mcp?key=***&project=***"),
        ("http://h?s3cret", "http://h?***"),
        ("http://h?key=${KEY}&other=a${B}", "http://h?key=${KEY}&other=***${B}"),
        ("http://h?key=", "http://h?key=***"),
        ("${URL}", "${URL}"),
        ("unix:/run/a.sock:/p?key=s3cret", "unix:/run/a.sock:/p?key=***"),
    ],
)
def test_a_dump_shows_the_names_in_the_query_of_an_upstream_and_no_value(written: str, shown: str) -> None:
    assert {"upstreams": {"a": {"url": shown}}} == redact_config({"upstreams": {"a": {"url": written}}})


def test_masks_each_place_that_a_key_declares_as_a_secret() -> None:
    places = set(CONFIG.list_secrets({}))
    assert {
        ("admin", "token"),
        ("admin", "readers"),
        ("upstreams", "*", "url"),
        ("upstreams", "*", "headers", "set", "*"),
        ("defaults", "headers", "set", "*"),
        ("defaults", "auth", "bearer", "*"),
        ("routes", "*", "headers", "set", "*"),
        ("routes", "*", "auth", "bearer", "*"),
        ("hooks", "*", "settings"),
    } == places
    assert [] == [place for place in places if not may_hold_secret(place)]
    assert may_hold_secret(("hooks", 0, "settings", "nested", 1))


@pytest.mark.parametrize("path", [(), ("admin",), ("admin", "listen"), ("routes", 0, "path"), ("hooks", 0, "use")])
def test_shows_what_no_key_declares_as_a_secret(path: tuple[str | int, ...]) -> None:
    assert not may_hold_secret(path)
