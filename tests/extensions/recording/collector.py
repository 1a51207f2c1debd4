"""A real OTLP/HTTP receiver on a loopback port: decodes what arrives and keeps the spans, as a collector would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

KINDS = {2: "server", 3: "client"}


@dataclass(frozen=True)
class Arrived:
    """One span as it was on the wire. Ids in hexadecimal, times in nanoseconds since the Unix epoch."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    state: str
    started: int
    ended: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    failed: str | None
    resource: dict[str, Any] = field(repr=False)


@dataclass
class Collector:
    """A running receiver. `status` is what it answers; while `open` is not set, it does not answer at all."""

    port: int = 0
    status: int = 200
    spans: list[Arrived] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """Returns what OTEL_EXPORTER_OTLP_ENDPOINT says."""
        return f"http://127.0.0.1:{self.port}"

    async def until(self, count: int) -> list[Arrived]:
        """The spans, once there are so many."""
        async with asyncio.timeout(300):
            while len(self.spans) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return self.spans

    async def take(self, request: web.Request) -> web.Response:
        """Answers one export."""
        await self.open.wait()
        sent = ExportTraceServiceRequest.FromString(await request.read())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.status == 200:
            self.spans.extend(_spans(sent))
            self.arrived.set()
        return web.Response(
            status=self.status,
            body=ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )


@contextlib.asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """A receiver on a free loopback port, which answers."""
    made = Collector()
    made.open.set()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    try:
        yield made
    finally:
        made.open.set()
        await runner.cleanup()


def _spans(sent: Any) -> list[Arrived]:
    return [
        Arrived(
            span.name,
            KINDS[span.kind],
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.trace_state,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _values(span.attributes),
            [(event.name, _values(event.attributes)) for event in span.events],
            span.status.message if span.status.code == 2 else None,
            _values(resource.resource.attributes),
        )
        for resource in sent.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
