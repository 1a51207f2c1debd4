"""The plugin `access`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proxy.plugin import AddsVerbs, ExtendsCalls, ObservesCalls, Verb

if TYPE_CHECKING:
    from proxy.config.keys.kinds import Kind
    from proxy.config.model import Config, RouteEntry
    from proxy.extensions.access.access_services import AccessServices
    from proxy.extensions.access.audit import CallAudit
    from proxy.interfaces import CallLimiter, Clock, Pacing, Services
    from proxy.plugin import AnswerPath, Context, Files, Log, MetricRow, Metrics, PinnedTools, Upstreams


class AccessPlugin(AddsVerbs, ExtendsCalls, ObservesCalls):
    """Decides who may call what and how often."""

    name = "access"
    adds = "who may call what and how often: tokens that issuers sign, rules and rates, and a line per decision"
    uses = ("operations",)
    verbs = ("pin",)
    sections = ("access", "pins")
    policy_keys = ("jwt", "allow", "deny")
    whole_keys = ("jwt",)
    joined_keys = ("deny",)
    limit_keys = ("rate", "concurrent")
    shared_limits = ("rate",)
    asks_callers = ("jwt", "allow", "deny")
    schemas = (("defaults", "allow", "*", "arguments"), ("routes", "*", "allow", "*", "arguments"))

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.extensions.access.access_section import KEYS

        return KEYS

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.access.audit import METRICS

        return METRICS

    def load_verb(self, verb: str) -> Verb:
        from proxy.extensions.access import cli

        return cli

    def read_section(self, key: str, context: Context, files: Files, upstreams: Upstreams) -> object:
        if key == "pins":
            from proxy.extensions.access.pins_section import read_pins

            return read_pins(context, files, upstreams)
        from proxy.extensions.access.access_section import read_access

        return read_access(context, files, upstreams)

    def check_keys(self, context: Context, routes: tuple[RouteEntry, ...]) -> None:
        from proxy.extensions.access.access_checks import check_access

        check_access(context, routes)

    def summarize(self, config: Config) -> list[str]:
        from proxy.extensions.access.access_checks import write_table

        return write_table(config)

    def make_services(self, services: Services, log: Log, metrics: Metrics) -> AccessServices:
        from proxy.extensions.access.access_services import AccessServices

        return AccessServices(services, log, metrics)

    def make_observer(self, clock: Clock, pacing: Pacing, metrics: Metrics, log: Log) -> CallAudit:
        from proxy.extensions.access.audit import CallAudit

        return CallAudit(clock, pacing, metrics, log)

    def make_answers(self, config: Config) -> Mapping[str, AnswerPath]:
        from proxy.extensions.access.access_section import make_answers

        return make_answers(config)

    def find_pinned(self, config: Config, route: str) -> PinnedTools | None:
        from proxy.extensions.access.pins_section import find_pinned

        return find_pinned(config, route)

    def make_limiter(self, services: Services) -> CallLimiter:
        from proxy.extensions.access.limiter import make_limiter

        return make_limiter(services)
