"""A URL in a dump of the config keeps its references, and loses its passwords."""

from __future__ import annotations

import pytest

from proxy.config.files.masking import mask_url


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
