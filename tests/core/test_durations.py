"""Lengths of time as tools write them, and what becomes of them in the answer to a client."""

from __future__ import annotations

import pytest

from proxy.core.envelope.parts import read_retry_after
from proxy.core.model.fields import read_seconds


@pytest.mark.parametrize(
    ("expected", "text"),
    [(60.0, "60"), (60.0, "60s"), (1.5, "1.5 s"), (60.0, "1m0s"), (120.0, "2m"), (0.5, "500ms"), (3723.0, "1h2m3s"),
     (3600.0, "1h"), (None, ""), (None, "soon"), (None, "m"), (None, "1s2m"), (None, "-1s"), (None, "1m0"),
     (None, "٣s")],
)  # fmt: skip
def test_a_length_of_time_is_read_as_go_writes_it(expected: float | None, text: str) -> None:
    assert expected == read_seconds(text)


@pytest.mark.parametrize(("expected", "text"), [("60", "1m0s"), ("1", "500ms"), ("", "in a minute"), ("120", "2m")])
def test_it_becomes_a_retry_after_in_whole_seconds(expected: str, text: str) -> None:
    assert expected == read_retry_after(text)
