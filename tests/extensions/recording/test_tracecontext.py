"""The header of W3C Trace Context, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.extensions.recording.spans import Parent, read_parent
from proxy.upstream.sending import write_traceparent

IDS = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
PARENT = Parent("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1)
HEX = "0123456789abcdef"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"00-{IDS}-01", PARENT),
        (f"cc-{IDS}-01", PARENT),
        (f"cc-{IDS}-01-what-comes-later", PARENT),
        (f"00-{IDS}-01-more", None),
        (f"cc-{IDS}-01.more", None),
        (f"ff-{IDS}-01", None),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01", None),
        (f"00-{IDS.upper()}-01", None),
        (f" 00-{IDS}-01", None),
        (f"00-{IDS}-1", None),
        ("", None),
        (None, None),
    ],
)
def test_a_parent_is_read_as_w3c_writes_it(header: str | None, found: Parent | None) -> None:
    assert found == read_parent(header)


@given(
    st.text(HEX, min_size=32, max_size=32).filter(lambda text: text.strip("0")),
    st.text(HEX, min_size=16, max_size=16).filter(lambda text: text.strip("0")),
    st.integers(0, 255),
)
def test_a_written_parent_is_read_again(trace_id: str, span_id: str, flags: int) -> None:
    assert Parent(trace_id, span_id, flags) == read_parent(write_traceparent(trace_id, span_id, flags))
