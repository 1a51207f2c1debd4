"""A request by its head: what the stages before the body read of it, with a task of its own or without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp.streams import EmptyStreamReader, StreamReader
from aiohttp.web_request import BaseRequest

if TYPE_CHECKING:
    from aiohttp import web


class ParsedRequest:
    """A request as aiohttp's parser gives it: the part of `web.BaseRequest` that needs no task."""

    __slots__ = ("body_exists", "content", "headers", "method", "protocol", "raw_headers", "raw_path", "version")

    def __init__(self, message: Any, content: StreamReader, protocol: web.RequestHandler) -> None:
        self.method: str = message.method
        self.version = message.version
        self.raw_path: str = message.path
        self.raw_headers: tuple[tuple[bytes, bytes], ...] = message.raw_headers
        self.headers = message.headers
        self.content = content
        self.body_exists = type(content) is not EmptyStreamReader
        self.protocol = protocol


RequestHead = BaseRequest | ParsedRequest
