"""Server-sent events of the last calls and of the proxy's changes (WHATWG HTML section 9.2).

    event: call      one finished request, as `/-/calls` lists it
    event: reload    a changed config is used from now on, or was refused
    event: breaker   a circuit breaker changed its state
    event: drain     the proxy begins to drain
    event: bye       the proxy ends; this is the last event of the stream
    event: lost      the number of calls that a reader missed because it was too slow or came back too late

The proxy keeps no queue for a reader, only the number of the last call that it has seen. So a slow reader costs no
memory and delays no call. The ring of kept calls is read ten times a second while a stream is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue
from proxy.extensions.console.kept_calls import CallFilter, select_calls, write_entry
from proxy.server.admin.page import ConsoleData, Readers

# The seconds between two readings of the ring.
_EVERY: Final = 0.1
# The number of reads without a new event after which a stream sends a comment, so that no intermediary closes it.
_SILENT: Final = 150
# The most calls sent in one write.
_MOST: Final = 500


class _Place(NamedTuple):
    call: int
    change: int


def format_event(event: str, data: JsonValue, name: str = "") -> bytes:
    """Returns one event as bytes. `name` is its id: the position with which a reader continues behind it."""
    return _frame_event(event, dumps(data), name)


def _frame_event(event: str, data: bytes, name: str) -> bytes:
    head = f"id: {name}\n" if name else ""
    return f"{head}event: {event}\ndata: ".encode() + data + b"\n\n"


async def follow_calls(
    data: ConsoleData, call_filter: CallFilter, start: int | None, readers: Readers
) -> AsyncGenerator[bytes, None]:
    """Yields the events behind the call with the number `start` until the proxy ends.

    With `start` None the reader's position belongs to another run of the process. The stream then begins with a `lost`
    event whose number is null, because the number of missed calls is unknown.
    """
    recent, silent = data.recent, 0
    place = _Place(recent.last if start is None else start, data.changes.last)
    readers.count += 1
    try:
        yield b": toolcall-proxy\n\n" + (format_event("lost", {"missed": None}) if start is None else b"")
        while not readers.ending:
            piece, place = _read_new(data, call_filter, place)
            silent = 0 if piece else silent + 1
            if piece:
                yield piece
            elif silent == _SILENT:
                silent = 0
                yield b": still here\n\n"
            await asyncio.sleep(_EVERY)
        yield _read_new(data, call_filter, place)[0] + format_event("bye", {})
    finally:
        readers.count -= 1


def _read_new(data: ConsoleData, call_filter: CallFilter, place: _Place) -> tuple[bytes, _Place]:
    """Returns the events since a position, and the position behind them."""
    recent, changes = data.recent, data.changes
    if place == (recent.last, changes.last):
        return b"", place
    changed = data.changes.after(place.change)
    pieces = [format_event(change.event, {"at": change.at, **change.data}) for change in changed]
    missed = recent.oldest - place.call - 1 if recent.oldest else 0
    seen = place.call
    if missed > 0:
        pieces.append(format_event("lost", {"missed": missed}))
        seen = recent.oldest - 1
    new = list(select_calls(recent, replace(call_filter, after=seen)))[::-1]
    pieces += [_frame_event("call", write_entry(recent, kept), f"{recent.boot}.{kept.seq}") for kept in new[:_MOST]]
    last = new[_MOST - 1].seq if len(new) > _MOST else recent.last
    return b"".join(pieces), _Place(last, changes.last)


# --- several workers --------------------------------------------------------------------------------------------------
# Takes a position among the calls and one among the changes; returns the merged `/-/calls` of all workers since then,
# or None if no worker answers.
ReadCalls = Callable[[str, str], Awaitable[dict[str, JsonValue] | None]]
_WORKERS_EVERY: Final = 0.2


async def follow_workers(read: ReadCalls, start: str, readers: Readers) -> AsyncGenerator[bytes, None]:
    """Yields the events of all workers, each call once and in order of time.

    The workers are queried only while the stream is open. The end of a worker is announced as `lost`, because its last
    calls end with its process.
    """
    readers.count += 1
    try:
        place, changes, silent = start, "", 0
        if not start:
            answer = await read("", "")
            place = str(answer["cursor"]) if answer is not None else ""
            changes = str(answer["changes_cursor"]) if answer is not None else ""
        yield b": toolcall-proxy\n\n"
        while not readers.ending:
            answer = await read(place, changes)
            pieces: list[bytes] = []
            if answer is not None:
                pieces = list(_worker_events(answer, place))
                place, changes = str(answer["cursor"]), str(answer["changes_cursor"])
            silent = 0 if pieces else silent + 1
            if pieces:
                yield b"".join(pieces)
            elif silent * _WORKERS_EVERY >= _SILENT * _EVERY:
                silent = 0
                yield b": still here\n\n"
            await asyncio.sleep(_WORKERS_EVERY)
        yield format_event("bye", {})
    finally:
        readers.count -= 1


def _worker_events(answer: dict[str, JsonValue], before: str) -> Iterator[bytes]:
    now = _runs(str(answer["cursor"]))
    for run in _runs(before):
        if run not in now:
            yield format_event("lost", {"worker": run, "missed": None})
    if answer["missed"]:
        yield format_event("lost", {"missed": answer["missed"]})
    for change in answer["changes"]:
        yield format_event(str(change["event"]), {key: item for key, item in change.items() if key != "event"})
    place = _runs(before)
    for call in reversed(answer["calls"]):
        run, _, number = str(call["id"]).partition(".")
        place[run] = number
        yield format_event("call", call, ",".join(f"{one}.{last}" for one, last in place.items()))


def _runs(place: str) -> dict[str, str]:
    """Splits a position into {run of a process: number of the last call seen}."""
    return {pair.partition(".")[0]: pair.partition(".")[2] for pair in place.split(",") if "." in pair}
