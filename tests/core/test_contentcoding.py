"""Content codings taken off within a bound."""

from __future__ import annotations

import gzip
import zlib

import pytest

from proxy.core.json.contentcoding import Undecodable, decode, is_coded, is_known

TEXT = b'{"lat": 48.85}' * 10


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (TEXT, ""),
        (TEXT, "identity"),
        (gzip.compress(TEXT, mtime=0), "gzip"),
        (gzip.compress(TEXT, mtime=0), " X-GZIP "),
        (gzip.compress(TEXT[:50], mtime=0) + gzip.compress(TEXT[50:], mtime=0), "gzip"),
        (zlib.compress(TEXT), "deflate"),
        (raw_deflate(TEXT), "deflate"),
    ],
)
def test_a_known_coding_is_taken_off(body: bytes, coding: str) -> None:
    assert TEXT == decode(body, coding, len(TEXT))


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_one_byte_over_the_bound_is_too_large(coding: str, pack: object) -> None:
    assert Undecodable.TOO_LARGE is decode(pack(TEXT), coding, len(TEXT) - 1)  # type: ignore[operator]


def test_many_small_members_are_bounded_together() -> None:
    assert Undecodable.TOO_LARGE is decode(gzip.compress(TEXT, mtime=0) * 100, "gzip", len(TEXT) * 99)


def test_rejects_a_gzip_body_of_too_many_members() -> None:
    """Each costs a copy of the rest: 50,000 in a megabyte took 2.5 seconds."""
    assert TEXT * 500 == decode(gzip.compress(TEXT, mtime=0) * 500, "gzip", len(TEXT) * 500)
    assert Undecodable.BROKEN is decode(gzip.compress(b"", mtime=0) * 1001, "gzip", 10_000)


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (TEXT, "gzip"),
        (b"", "gzip"),
        (gzip.compress(TEXT, mtime=0)[:-1], "gzip"),
        (gzip.compress(TEXT, mtime=0) + b"junk", "gzip"),
        (TEXT, "deflate"),
        (zlib.compress(TEXT) + b"junk", "deflate"),
        (zlib.compress(TEXT)[:-1], "deflate"),
    ],
)
def test_a_body_that_is_cut_short_or_followed_by_junk_is_broken(body: bytes, coding: str) -> None:
    assert Undecodable.BROKEN is decode(body, coding, 10_000)


def test_an_empty_text_can_be_compressed() -> None:
    assert b"" == decode(gzip.compress(b"", mtime=0), "gzip", 0)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "foo"])
def test_any_other_coding_is_unknown(coding: str) -> None:
    assert (Undecodable.UNKNOWN, False, True) == (decode(TEXT, coding, 10_000), is_known(coding), is_coded(coding))
