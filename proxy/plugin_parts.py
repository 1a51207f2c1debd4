"""The parts of the main job that plugins take from `proxy.plugin`: the types of its seams, and helpers.

A helper is imported when a plugin first takes it, so that a proxy loads only what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

# fmt: off
if TYPE_CHECKING:
    from proxy.adapters.base import Adapter, CallShape, ConversationSource, find_nameless
    from proxy.call.run import run_call
    from proxy.call_record import CallRecord
    from proxy.cli.check_formats import CheckFlag, CheckReport, FlagFinding, print_unusable
    from proxy.cli.options import CommandParser, add_header_option, add_timeout_option, read_header, write_defaults
    from proxy.cli.progress import Progress
    from proxy.config.combinations import Finding, WrittenRoute
    from proxy.config.context import Context, read_named_text
    from proxy.config.files.secrets import Substitution, Unresolved, reveal, reveal_all
    from proxy.config.files.source import MAX_FILE_BYTES, ConfigSource, Files, JsonPlaces, read_file
    from proxy.config.keys.kinds import Kind
    from proxy.config.load import Loaded, load
    from proxy.config.mistakes import DROP_ONE, ConfigError, explain_rule, join_words, split_url
    from proxy.config.mistakes import suggest_remark, suggest_word
    from proxy.config.model import AdminConfig, Config, RouteEntry, UpstreamConfig
    from proxy.config.routes import RouteKindReader
    from proxy.config.schemas import BASE, FoundSchema, ReadSchema, SchemaPlace, SourceProblem
    from proxy.config.schemas import describe_finding, word_error
    from proxy.config.sections.network import is_unencrypted, read_upstream_tls
    from proxy.config.sections.top_level import NO_UPSTREAM, widen_pools
    from proxy.config.sections.units import read_seconds, read_switch
    from proxy.config.tools import ToolReader, check_policy, show_schema
    from proxy.core.check.validation import Check, SchemaError, compile_check
    from proxy.core.contract.listed_tool import PinnedTools
    from proxy.core.contract.request_rules import OTHER_SPELLING, ChannelJudge, OperationRule, QueryPolicy
    from proxy.core.contract.request_rules import RequestForm, WrittenRequest
    from proxy.core.decide import decide, prepare
    from proxy.core.display.suggestions import find_nearest
    from proxy.core.envelope.feedback import write_feedback
    from proxy.core.explain.advice import add_advice
    from proxy.core.explain.explain import explain_unknown_tool, list_violations
    from proxy.core.explain.signature import write_signature
    from proxy.core.model.values import CheckedCall, Headers, JsonValue, Pointer
    from proxy.hooks.running import FollowingHooks
    from proxy.interfaces import CallLimiter, Clock, LearnedLists, Pacing, Services, StateStore, ToolTexts
    from proxy.server.admin.page import Counts, EventPage, Page, PageCounts, PageRequest
    from proxy.server.admin.port import SharedPages, open_operator_ports
    from proxy.server.handler import AnswerPath, Snapshot, Usable
    from proxy.server.lifecycle import Serving
    from proxy.server.listed_routes import Answer, ListedRequest, PassedOn, RelayHandler, Reports, RouteHandler
    from proxy.server.setup.added import ConfiguredObserver, ServiceExtender, Tracer
    from proxy.server.setup.upstreams import UpstreamKind, make_settings
    from proxy.state import Changed, MemoryStore, StoreChange, make_store
    from proxy.telemetry.logs import Log, read_fields, render_json, round_milliseconds
    from proxy.telemetry.metric_table import METHODS, OTHER, OUTCOMES, Label, MetricRow
    from proxy.telemetry.metrics import Metrics
    from proxy.telemetry.watches import TroubleWatcher
    from proxy.upstream.outgoing_client import OutgoingClient, TOO_LARGE, post_json
    from proxy.upstream.replayed_body import ReplayedBody, gather_body

# Module -> the names that plugins take of it while they run, not only for types.
_MODULES: Final = {
    "adapters.base": "Adapter CallShape ConversationSource find_nameless", "call.run": "run_call",
    "cli.check_formats": "CheckFlag CheckReport FlagFinding print_unusable",
    "cli.options": "CommandParser add_header_option add_timeout_option read_header write_defaults",
    "cli.progress": "Progress", "config.context": "Context read_named_text",
    "config.files.secrets": "Substitution Unresolved reveal reveal_all",
    "config.files.source": "ConfigSource Files JsonPlaces MAX_FILE_BYTES read_file", "config.load": "Loaded load",
    "config.mistakes": "ConfigError DROP_ONE explain_rule join_words split_url suggest_remark suggest_word",
    "config.schemas": "BASE FoundSchema ReadSchema SchemaPlace SourceProblem describe_finding word_error",
    "config.sections.network": "is_unencrypted read_upstream_tls",
    "config.sections.top_level": "NO_UPSTREAM widen_pools", "config.sections.units": "read_seconds read_switch",
    "config.tools": "ToolReader check_policy show_schema", "core.check.validation": "Check SchemaError compile_check",
    "core.contract.request_rules": "ChannelJudge OTHER_SPELLING OperationRule QueryPolicy RequestForm WrittenRequest",
    "core.decide": "decide prepare", "core.display.suggestions": "find_nearest",
    "core.envelope.feedback": "write_feedback", "core.explain.advice": "add_advice",
    "core.explain.explain": "explain_unknown_tool list_violations", "core.explain.signature": "write_signature",
    "hooks.running": "FollowingHooks", "server.admin.port": "SharedPages open_operator_ports",
    "server.setup.upstreams": "UpstreamKind make_settings", "state": "Changed MemoryStore StoreChange make_store",
    "telemetry.logs": "Log read_fields render_json round_milliseconds",
    "telemetry.metric_table": "Label METHODS MetricRow OTHER OUTCOMES", "telemetry.metrics": "Metrics",
    "upstream.outgoing_client": "OutgoingClient TOO_LARGE post_json",
    "upstream.replayed_body": "ReplayedBody gather_body",
}
# fmt: on
PARTS: Final = {name: f"proxy.{module}" for module, names in _MODULES.items() for name in names.split()}


def load_part(name: str) -> object:
    """Returns a helper by its name. Raises AttributeError if there is none."""
    if name not in PARTS:
        raise AttributeError(f"module 'proxy.plugin' has no attribute {name!r}")
    return getattr(import_module(PARTS[name]), name)
