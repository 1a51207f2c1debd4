"""The values that pages of the operator's port take and return: `PageRequest`, and `Page` or `EventPage`."""

from __future__ import annotations

import hmac
import re
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final, Literal, NamedTuple, Protocol

from proxy.call_record import CallRecord
from proxy.config.files.secrets import reveal
from proxy.config.model import AdminConfig
from proxy.core.json.jsontext import dumps
from proxy.core.model.fields import NoBearer, read_bearer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Fields, JsonValue
from proxy.interfaces import Observer
from proxy.plugin import AddsPages
from proxy.plugins import find_plugins
from proxy.telemetry.ring import KEPT_WRONG, KeptValues, RecentCalls

# --- what the operator's port looks back at ---------------------------------------------------------------------------
# The memory of the operator's port: the last calls, the last changes of the proxy, and the console's counts.
#
# `make_console_data` creates the `ConsoleData` from the config. With `console: off` it keeps only failed calls, and
# counts nothing.

# (route, tool, outcome) -> how many; a plugin's own counters have other keys
Counts = Mapping[tuple[Any, ...], float]
ChangeEvent = Literal["reload", "breaker", "drain"]


class LoggedChange(NamedTuple):
    """One change: its number, its time (seconds since the epoch), the event, and its fields: names, times and places in
    the config, never a value of it."""

    seq: int
    at: float
    event: ChangeEvent
    data: dict[str, Any]


class ChangeLog:
    """The last changes of the proxy: 50 reloads, 200 changes of breakers, the begin of a drain. `wall`: seconds since
    1970."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.last = 0
        self._wall = wall
        self._kept: dict[ChangeEvent, deque[LoggedChange]] = {
            "reload": deque(maxlen=50), "breaker": deque(maxlen=200), "drain": deque(maxlen=1),
        }  # fmt: skip

    def add(self, event: ChangeEvent, **data: Any) -> None:
        """Adds a change with its fields."""
        self.last += 1
        self._kept[event].append(LoggedChange(self.last, self._wall(), event, data))

    def add_reload(self, result: str, digest: str, mistakes: Sequence[str], changed: Sequence[str]) -> None:
        """Adds an attempt to reload the config; `changed` names what differs from the config before."""
        self.add("reload", result=result, digest=digest, mistakes=list(mistakes)[:20], changed=list(changed)[:50])

    def list_latest(self, event: ChangeEvent) -> list[dict[str, Any]]:
        """The changes of one kind, the latest first."""
        return [
            {"timestamp": datetime.fromtimestamp(each.at, UTC).isoformat(timespec="milliseconds"), **each.data}
            for each in reversed(self._kept[event])
        ]

    def after(self, seq: int) -> Iterator[LoggedChange]:
        """Changes with a higher number, oldest first."""
        return iter(sorted(each for kept in self._kept.values() for each in kept if each.seq > seq))


class PageCounts(Observer, Protocol):
    """A plugin's counts for its pages, from the start of the process on."""

    def begin(self) -> None:
        """Starts what is read at intervals. Must be called inside the event loop."""

    def end(self) -> None:
        """Ends what `begin` started."""


@value_class
class ConsoleData:
    """`recent` holds the last calls, `changes` the last changes of the proxy, `counts` what the console's pages count:
    None with `console: off`. `values` says how arguments are kept: off, preview or full. `wall` returns seconds since
    the epoch."""

    recent: RecentCalls
    changes: ChangeLog
    wall: Callable[[], float]
    values: str = "off"
    counts: PageCounts | None = None

    @property
    def observer(self) -> Observer:
        """Returns the observer that keeps finished requests, and counts them if the console is on."""
        return self.recent if self.counts is None else self

    def finished(self, record: CallRecord) -> None:
        """Counts and keeps one finished request."""
        if self.counts is not None:
            self.counts.finished(record)
        self.recent.finished(record)


def make_console_data(
    entry: AdminConfig | None, read: Callable[[], Counts], wall: Callable[[], float]
) -> ConsoleData | None:
    """Creates the data for an operator's port; None without one. `read` returns the counts of all requests so far."""
    if entry is None:
        return None
    boot = secrets.token_hex(4)
    if not entry.console:
        return ConsoleData(RecentCalls(wall, boot, KEPT_WRONG, only_wrong=True), ChangeLog(wall), wall)
    values = None if entry.values == "off" else KeptValues(entry.values, entry.keep_values)
    recent = RecentCalls(wall, boot, entry.keep_calls, values=values)
    made = (plugin.make_counts(read, wall, values=values is not None) for plugin in find_plugins(AddsPages))
    counts = next((each for each in made if each is not None), None)
    return ConsoleData(recent, ChangeLog(wall), wall, entry.values, counts)


# --- access to the operator's port ------------------------------------------------------------------------------------
# A browser can use this port only from the console's own page. `Host` has to be an IP address, a loopback name or a
# configured name, which stops DNS rebinding. `Origin` has to be absent or equal to the request's own origin.
# `Sec-Fetch-Site`, if a browser sends it, has to be `same-origin` or `none`. The port sets no cookies: a cookie is
# shared by all ports of a host, so pages on other ports would share the session. The token is sent in `Authorization`,
# which no browser adds by itself.
#
# With `admin.token`, every path below /-/ requires this token (role `operator`) or that of `admin.readers` (role
# `reader`, which changes nothing and sees no values). After ten wrong tokens within a minute an address has to wait.
Role = Literal["operator", "reader"]

WRONG_TOKENS: Final = 10
WITHIN: Final = 60.0
# The most addresses whose wrong tokens are remembered.
_MOST_ADDRESSES: Final = 1000
_HOST: Final = re.compile(r"(?P<name>\[[^\]]*\]|[^:]*)(?::[0-9]*)?")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})
# The values of `Sec-Fetch-Site` (W3C Fetch Metadata) for requests of the page itself, and of the browser's user.
_OWN_SITE: Final = frozenset({"same-origin", "none"})


class OperatorAccess:
    """The access rules of one operator's port. `now` is a monotonic clock in seconds. `reveal_now` reads a secret again
    at each use, so that a rotated token is valid at once."""

    def __init__(self, entry: AdminConfig, now: Callable[[], float], reveal_now: Callable[[str], str] = reveal) -> None:
        self._names = _LOOPBACK_NAMES | {entry.listen.host.lower()} | entry.hosts
        roles: tuple[tuple[str, Role], ...] = ((entry.token, "operator"), (entry.readers, "reader"))
        self._roles = [(token, role) for token, role in roles if token]
        self._reveal_now = reveal_now
        self._needs_token = bool(entry.token)
        self._now = now
        self._wrong: dict[str, deque[float]] = {}

    def knows_host(self, host: str) -> bool:
        """Returns whether a Host header names an address, a loopback or a configured name (RFC 9110 section 7.2)."""
        found = _HOST.fullmatch(host)
        name = found["name"].strip("[]").lower() if found is not None else ""
        if name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    def find_role(self, fields: Fields) -> Role | None:
        """Returns the role that the request's token gives, or None if the token is missing or wrong. It compares in
        constant time."""
        if not self._needs_token:
            return "operator"
        bearer = read_bearer(fields)
        if isinstance(bearer, NoBearer):
            return None
        token = bearer.encode("utf-8", "surrogatepass")
        found: Role | None = None
        for written, role in self._roles:
            known = self._reveal_now(written).encode("utf-8", "surrogatepass")
            if hmac.compare_digest(token, known):
                found = role
        return found

    def count_wrong_token(self, address: str) -> bool:
        """Counts a wrong token from an address, and returns True. Returns False if the address has to wait, because it
        has sent too many within the last minute."""
        if address not in self._wrong and len(self._wrong) >= _MOST_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        times = self._wrong.setdefault(address, deque(maxlen=WRONG_TOKENS))
        if len(times) == WRONG_TOKENS and self._now() - times[0] < WITHIN:
            return False
        times.append(self._now())
        return True


def is_foreign_page(fields: Fields, *, may_navigate: bool) -> bool:
    """Returns whether a request comes from a page of another origin. With `may_navigate`, following a link from another
    origin to this page is allowed."""
    origin, host = fields.get("origin"), fields.get("host") or ""
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        return True
    site = fields.get("sec-fetch-site")
    if site is None or site in _OWN_SITE:
        return False
    return not (
        may_navigate and fields.get("sec-fetch-mode") == "navigate" and fields.get("sec-fetch-dest") == "document"
    )


# --- values that pages take and return --------------------------------------------------------------------------------
_JSON: Final = "application/json"
# The most open streams; further readers get a 503.
READERS: Final = 8


@value_class
class PageRequest:
    """A request to a page of the operator's port.

    `rest` is the part of the path behind the page's own path, still percent-encoded. `body` is the JSON body of a POST.
    `role` is the role of the sender, `address` the sender's IP address. `accept`, `known` and `resume` are the headers
    `Accept`, `If-None-Match` and `Last-Event-ID`.
    """

    method: str
    path: str
    rest: str
    query: str
    body: Mapping[str, JsonValue]
    role: Role = "operator"
    address: str = ""
    accept: str = ""
    known: str = ""
    resume: str = ""

    @property
    def wants_events(self) -> bool:
        """Returns whether the sender accepts a stream of events."""
        return "text/event-stream" in self.accept


@value_class
class Page:
    """A complete answer. `headers` are added to the usual headers and replace those of the same name."""

    body: bytes
    status: int = 200
    content_type: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()


@value_class
class EventPage:
    """An answer that is a stream of server-sent events. Each item of `events` holds whole events."""

    events: AsyncGenerator[bytes, None]


class Readers:
    """Counts the open streams. Setting `ending` ends each of them with the event `bye`."""

    def __init__(self) -> None:
        self.count = 0
        self.ending = False

    def is_full(self) -> bool:
        """Returns whether the highest number of streams is open."""
        return self.count >= READERS


def make_json_page(value: JsonValue, status: int = 200) -> Page:
    """Returns a page that shows a JSON value."""
    return Page(dumps(value) + b"\n", status)


def refuse_question(why: str, status: int = 400) -> Page:
    """Returns a page that says why a request is refused."""
    return make_json_page({"error": why}, status)
