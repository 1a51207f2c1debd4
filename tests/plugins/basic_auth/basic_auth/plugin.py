"""The parts that the plugin adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proxy.plugin import AddsVerbs, ExtendsCalls, ObservesCalls, Verb

if TYPE_CHECKING:
    from basic_auth.admission import BasicServices
    from basic_auth.counting import CountedUsers, TotalLimiter
    from proxy.config.keys.kinds import Kind
    from proxy.interfaces import Clock, Pacing, Services
    from proxy.plugin import Context, Log, MetricRow, Metrics, RouteEntry


class BasicAuthPlugin(AddsVerbs, ExtendsCalls, ObservesCalls):
    """Admits requests by HTTP Basic."""

    name = "basic_auth"
    adds = "HTTP Basic: `basic_users`, the key `basic` of a route, and `basic-hash`"
    verbs = ("basic-hash",)
    sections = ("basic_users",)
    policy_keys = ("basic",)
    whole_keys = ("basic",)
    limit_keys = ("total",)
    asks_callers = ("basic",)

    def declare_keys(self) -> Mapping[str, Kind]:
        from basic_auth.keys import KEYS

        return KEYS

    def list_metrics(self) -> Sequence[MetricRow]:
        from basic_auth.counting import CALLS

        return (CALLS,)

    def load_verb(self, verb: str) -> Verb:
        from basic_auth import hashing

        return hashing

    def check_keys(self, context: Context, routes: tuple[RouteEntry, ...]) -> None:
        known, written = context.mapping("basic_users"), context.structure.value.get("routes")
        for index, route in enumerate(written if isinstance(written, list) else ()):
            for user in route.get("basic") or ():
                if user not in known:
                    hint = "add the user with what `toolcall-proxy basic-hash` prints"
                    context.mistake(("routes", index, "basic"), f"{user!r} is not in `basic_users`", hint)

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> BasicServices:
        from basic_auth.admission import BasicServices

        return BasicServices()

    def make_limiter(self, services: Services) -> TotalLimiter:
        from basic_auth.counting import TotalLimiter

        return TotalLimiter()

    def make_observer(self, clock: Clock, pacing: Pacing, metrics: Metrics, log: Log) -> CountedUsers:
        from basic_auth.counting import CountedUsers

        return CountedUsers(metrics)
