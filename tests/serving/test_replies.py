"""Answers that cannot be written to their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.app.replies import _stream
from proxy.core.model import UpstreamReply
from proxy.interfaces import CallRecord


class Gone:
    """A client's connection that is found broken when the answer is written."""

    async def prepare(self, _request: object) -> None:
        raise ConnectionResetError


class Body:
    """An upstream's answer; `closed` once nobody wants more of it."""

    closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"x"

    async def aclose(self) -> None:
        self.closed = True


class Asked:
    """As much of a request as a stream looks at."""

    method = "GET"
    transport = None


async def test_a_client_that_is_gone_when_its_answer_is_written_counts_as_gone_and_not_as_a_defect() -> None:
    body: Any = Body()
    gone: Any = Gone()
    asked: Any = Asked()
    with pytest.raises(asyncio.CancelledError):
        await _stream(gone, UpstreamReply(200, (), body), body, asked, CallRecord("r", "/a"))

    assert body.closed
