"""Exports traces: samples requests, and sends their spans to a collector by OTLP over HTTP.

This is the only file that uses OpenTelemetry, and it is imported only if traces are on. The SDK
reads sampler, resource, batching, endpoint, headers and TLS from the standard variables `OTEL_*`.

Spans are made from finished records (`spans.py`) and queued as `ReadableSpan`s. The SDK advises against making those by
hand. But its tracer assigns a span's id while the span runs, and the proxy's ids are in the upstream's `traceparent`
before a record exists. A thread of the SDK exports, so the event loop never waits for a collector. Spans beyond the
length of the queue are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from proxy import __version__
from proxy.call_record import CallRecord, Trace
from proxy.extensions.recording.spans import RANDOM, SAMPLED, Span, build_spans, read_parent
from proxy.interfaces import Clock

NAME: Final = "toolcall-proxy"
# The SDK's own bound for its queue, OTEL_BSP_MAX_QUEUE_SIZE.
_QUEUE: Final = 2048
_KINDS: Final = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_SCOPE: Final = InstrumentationScope(NAME, __version__)
_NANO: Final = 1_000_000_000

Bits = Callable[[int], int]
Knows = Callable[[str, str], bool]
Tell = Callable[[str, str], None]
Count = Callable[[str, int], None]


class Traces:
    """Implements `Observer`, and starts the trace of each request. Made inside the event loop."""

    def __init__(self, clock: Clock, bits: Bits, knows: Knows, count: Count, tell: Tell) -> None:
        """`bits(n)` gives n random bits; `knows(route, tool)` says whether a tool's name may be shown; `count(result,
        number)` counts spans by `tracing.RESULTS`; `tell(message, level)` writes to the log. Raises what the SDK
        raises for a variable that it cannot read.
        """
        written = os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "")
        queue = int(written) if written.isdecimal() and int(written) else _QUEUE
        self._clock = clock
        self._bits = bits
        self._count = count
        self._knows = knows
        self._queue = queue
        self._resource = Resource(
            {"service.name": NAME, "service.version": __version__, "service.instance.id": str(uuid.uuid4())}
        ).merge(OTELResourceDetector().detect())
        self._sampler = TracerProvider(resource=self._resource, shutdown_on_exit=False).sampler
        loop = asyncio.get_running_loop()
        self._exporter = _Counting(OTLPSpanExporter(), count, lambda *event: _tell_from_thread(loop, tell, *event))
        self._batch = BatchSpanProcessor(self._exporter, max_queue_size=queue)
        self._taken = 0

    def begin(self, traceparent: str | None, tracestate: str | None) -> Trace:
        """Starts the trace of a request: it continues the trace that the request names, or is a new one."""
        parent = read_parent(traceparent)
        trace_id = parent.trace_id if parent is not None else f"{self._bits(128) or 1:032x}"
        state = (tracestate or "") if parent is not None else ""
        context = Context()
        if parent is not None:
            above = _make_context(trace_id, parent.span_id, parent.flags, state, remote=True)
            context = set_span_in_context(NonRecordingSpan(above), context)
        chosen = self._sampler.should_sample(context, int(trace_id, 16), "tools/call", SpanKind.SERVER).decision
        flags = (SAMPLED if chosen is Decision.RECORD_AND_SAMPLE else 0) | (parent.flags & RANDOM if parent else 0)
        return Trace(trace_id, self._fresh(), parent.span_id if parent else "", flags, state, self._fresh)

    def finished(self, record: CallRecord) -> None:
        """Queues the spans of a request whose trace is sampled."""
        if record.trace is None or not record.trace.flags & SAMPLED:
            return
        offset = self._clock.wall() - self._clock.now()
        for span in build_spans(record, known=self._knows(record.route, record.tool)):
            if self._taken - self._exporter.taken >= self._queue:
                self._count("dropped", 1)
                continue
            self._taken += 1
            self._batch.on_end(self._make_readable(span, offset))

    async def flush(self, within: float) -> None:
        """Exports the queued spans within `within` seconds; gives up at once where the last export failed."""
        await _run_in_thread(self._batch.force_flush, within if self._exporter.well else 0)

    async def close(self, within: float) -> None:
        """Exports the queued spans and ends; gives up like `flush`."""
        await _run_in_thread(self._batch.shutdown, within if self._exporter.well else 0)

    def _fresh(self) -> str:
        return f"{self._bits(64) or 1:016x}"

    def _make_readable(self, span: Span, offset: float) -> ReadableSpan:
        trace = span.trace
        remote = span.kind == "server"
        parent = (
            _make_context(trace.trace_id, span.parent_id, trace.flags, trace.state, remote) if span.parent_id else None
        )
        return ReadableSpan(
            span.name,
            _make_context(trace.trace_id, span.span_id, trace.flags, trace.state),
            parent,
            self._resource,
            span.attributes,
            [Event(event.name, event.attributes, _to_nanos(event.at + offset)) for event in span.events],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR, span.failed) if span.failed else Status(StatusCode.UNSET),
            start_time=_to_nanos(span.started + offset),
            end_time=_to_nanos(span.ended + offset),
            instrumentation_scope=_SCOPE,
        )


class _Counting(SpanExporter):
    """Counts the spans that the exporter accepts, and reports changes. Runs in the SDK's thread."""

    def __init__(self, inner: SpanExporter, count: Count, tell: Tell) -> None:
        self._inner = inner
        self._count = count
        self._tell = tell
        self.well = True
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        try:
            result = self._inner.export(spans)
        except Exception:  # noqa: BLE001 - whatever the library raises, calls go on
            result = SpanExportResult.FAILURE
        well = result is SpanExportResult.SUCCESS
        self._count("exported" if well else "failed", len(spans))
        if well is not self.well:
            self.well = well
            self._tell(*(("Spans are exported again", "info") if well else ("Spans cannot be exported", "warning")))
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


class SdkMessages(logging.Handler):
    """Passes the SDK's messages to the log: only their templates, because the values may be secret."""

    def __init__(self, tell: Tell) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(f"OpenTelemetry: {record.msg}", "warning")


def make_traces(clock: Clock, bits: Bits, knows: Knows, count: Count, tell: Tell) -> Traces | None:
    """Makes traces as the variables `OTEL_*` say. None, with a log line, where the SDK cannot read one of them."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False  # otherwise Python writes its own lines to the log's stream
    saying = SdkMessages(tell)
    logger.addHandler(saying)
    try:
        return Traces(clock, bits, knows, count, tell)
    except Exception as error:  # noqa: BLE001 - calls are served whatever the SDK makes of a variable
        # Without the exception's message, which may quote a header's value.
        tell(f"Traces are off: a variable OTEL_* has a value that cannot be ({type(error).__name__})", "error")
        return None
    finally:
        logger.removeHandler(saying)
        logger.addHandler(logging.NullHandler())  # without any handler Python would write these messages itself


def _make_context(trace_id: str, span_id: str, flags: int, state: str, remote: bool = False) -> SpanContext:
    known = TraceState.from_header([state]) if state else TraceState()
    return SpanContext(int(trace_id, 16), int(span_id, 16), remote, TraceFlags(flags), known)


def _to_nanos(seconds: float) -> int:
    return int(seconds * _NANO)


def _tell_from_thread(loop: asyncio.AbstractEventLoop, tell: Tell, message: str, level: str) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(tell, message, level)


async def _run_in_thread(work: Callable[[], object], within: float) -> None:
    """Runs blocking work in a daemon thread, which does not keep the process alive."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        work()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="spans", daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await done.wait()
