"""The pages of the operator's port: one function per path and method, listed in `PAGES`.

Each function takes the proxy and a `PageRequest` and returns a `Page`. Only a POST changes anything. No page shows a
secret of the config. A page shows values of calls only if `admin.values` allows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote

from proxy.adapters.ladder import make_conversation
from proxy.config.files.secrets import restore_written
from proxy.core.contract import attempts as contract
from proxy.core.contract import refusals
from proxy.core.contract.policy import AttemptsPolicy, ToolPolicy
from proxy.core.json.jsontext import make_decimal
from proxy.core.model import codes
from proxy.core.model.values import Episode, JsonValue
from proxy.plugin import AddsPages
from proxy.plugins import find_plugins
from proxy.server.admin.page import ConsoleData, EventPage, Page, PageRequest, make_json_page, refuse_question
from proxy.server.setup.upstreams import find_trouble
from proxy.telemetry.logs import LEVELS
from proxy.telemetry.ring import make_entry, read_value

if TYPE_CHECKING:
    from proxy.server.lifecycle import Serving

_LONGEST_DRAIN: Final = 3600.0
_LONGEST_NAME: Final = 1000


# --- probes: they read this process only, never the store; one upstream only if the path names it ------------------
async def _alive(_serving: Serving, _question: PageRequest) -> Page:
    return make_json_page({"status": "ok"})


async def _ready(serving: Serving, _: PageRequest) -> Page:
    handler = serving.handler
    if handler.draining and not serving.config.stay_ready:
        return make_json_page({"status": "draining", "inflight": handler.inflight}, 503)
    return make_json_page({"status": "ok"})


async def _upstream_ready(serving: Serving, question: PageRequest) -> Page:
    upstream = unquote(question.rest)
    entry, pool = serving.config.upstreams.get(upstream), serving.pools.find_unguarded(upstream)
    if entry is None or pool is None:
        known = list(serving.config.upstreams)
        return make_json_page({"error": f"no upstream {upstream[:128]!r}", "upstreams": known}, 404)
    if reason := await serving.notices.watch_upstream(upstream, partial(find_trouble, entry, pool)):
        return make_json_page({"status": "not ready", "reason": reason}, 503)
    return make_json_page({"status": "ok"})


async def _metrics(serving: Serving, _: PageRequest) -> Page:
    # Calls do not wait for the first scrape's imports.
    page = await asyncio.to_thread(import_module, "proxy.telemetry.metrics_page")
    content_type, text = page.write_page(serving.metrics)
    return Page(text, content_type=content_type)


# --- what is served ---------------------------------------------------------------------------------------------------
async def _routes(serving: Serving, _: PageRequest) -> Page:
    shown = [
        {
            "name": route.name,
            "path": route.path,
            "methods": sorted(route.methods),
            "kind": route.kind,
            "protocol": route.adapter,
            "upstream": route.upstream,
            **_servers(serving, route.upstream),
            "query": route.query_policy.value,
            "unjudged_query": route.forwards_unjudged_query,
            "tools": {
                name: {"mode": policy.mode.value, "schema_id": policy.schema_id} for name, policy in route.tools.items()
            },
        }
        for route in serving.handler.snapshot.table.routes
    ]
    return make_json_page({"routes": shown})


def _servers(serving: Serving, upstream: str) -> dict[str, JsonValue]:
    """The MCP servers that a route joins, by name: '' for a reachable server, otherwise why it cannot be reached."""
    entry = serving.config.upstreams.get(upstream)
    if entry is None or entry.added is None or not entry.added.servers:
        return {}
    down = serving.pools.list_servers_down(upstream)
    return {"servers": {server: down.get(server, "") for server in entry.added.servers}}


async def _config(serving: Serving, _: PageRequest) -> Page:
    served = serving.reloader.served
    shown: JsonValue = {
        "digest": served.loaded.digest,
        "restart_needed": list(served.restart_needed),
        "mistakes": list(serving.reloader.mistakes),
        "config": _show_addresses(serving, restore_written(served.loaded.config.written)),
    }
    return make_json_page(shown)


def _show_addresses(serving: Serving, written: JsonValue) -> JsonValue:
    """The config with the addresses that are open, which the command line may have chosen."""
    if not isinstance(written, dict):
        return written
    shown = dict(written)
    if not isinstance(shown.get("listen"), dict):
        shown["listen"] = str(serving.ports[0].address)
    if shown.get("admin") in ("off", False) and serving.operator_ports:
        shown["admin"] = {"listen": str(serving.operator_ports[0].address)}
    return shown


async def _schema(serving: Serving, question: PageRequest) -> Page:
    tool = unquote(question.rest)
    found: dict[str, JsonValue] = {}  # by schema id, because routes may serve one tool with different schemas
    for route in serving.config.routes:
        served = route.tools.get(tool) or (route.listed.tools.get(tool) if route.listed is not None else None)
        if served is None or served.schema is None:
            continue
        shown = found.setdefault(
            served.schema.schema_id,
            {"schema_id": served.schema.schema_id, "routes": [], "notes": list(served.schema.notes),
             "schema": served.schema.value},
        )  # fmt: skip
        shown["routes"].append(route.name)
    if not found:
        return refuse_question(f"no tool {tool[:128]!r} with a schema is served", 404)
    return make_json_page({"tool": tool, "schemas": list(found.values())})


# --- what happened ----------------------------------------------------------------------------------------------------
def list_current_tools(serving: Serving) -> dict[tuple[str, str], ToolPolicy]:
    """Returns the tools of all routes by route and name. Tools that an upstream lists are included once called."""
    snapshot = serving.handler.snapshot
    found = {(route.name, name): policy for route in snapshot.table.routes for name, policy in route.tools.items()}
    counted = serving.metrics.settle().requests.series
    for route in snapshot.table.routes:
        if route.learn is not None:
            tools = snapshot.bindings[route.name].catalogues.get_latest(route.learn)
            names = {key[1] for key in counted if key[0] == route.name}
            found |= {(route.name, name): policy for name in names if (policy := tools.get(name)) is not None}
    return found


async def _reloads(serving: Serving, _: PageRequest) -> Page:
    changes = serving.console.changes.list_latest("reload") if serving.console is not None else []
    served = serving.reloader.served
    shown: JsonValue = {
        "digest": served.loaded.digest,
        "restart_needed": list(served.restart_needed),
        "mistakes": list(serving.reloader.mistakes),
        "files": [path.name for path in served.loaded.files],
        "reloads": changes,
    }
    return make_json_page(shown)


async def _attempts(serving: Serving, question: PageRequest) -> Page:
    """Lists the running episodes of all conversations; those that wait for a human are first. A tool's errors that
    have escalated are one row with the calls that were refused for them.

    `conversation` selects one conversation by the id that its client sends; `rung` says at which rung of the ladder the
    client sends it (any rung by default). `waiting=true` selects the episodes that wait for a human.
    """
    query = parse_qs(question.query)
    running = dict(await serving.handler.snapshot.services.store.list_episodes())
    if "conversation" in query:
        hashes = set(_hashes(serving, query["conversation"][0], query.get("rung", [""])[0]))
        running = {key: episode for key, episode in running.items() if key.partition("/")[0] in hashes}
    waiting = query.get("waiting") == ["true"]
    limits, seen, shown = list_limits(serving), _last_seen(serving.console), list[JsonValue]()
    for key, episode in running.items():
        tool, is_over = contract.read_tool(key), is_waiting(key, episode, limits)
        if (episode.count == 0 and not is_over) or (waiting and not is_over):
            continue
        if refusals.make_blocked_key(key) in running:
            continue
        standing = refusals.read_standing(key, episode, limits.get(tool) or AttemptsPolicy())
        shown.append(
            {
                "key": key,
                "conversation": key.partition("/")[0],
                "tool": tool,
                "kind": "attempts" if contract.is_attempts(key) else "tool_errors",
                "attempts": standing.number,
                "max_attempts": standing.limit,
                "calls": episode.failed,
                "waiting": is_over,
                "history": list(refusals.write_standing(key, episode)),
                **seen.get((key.partition("/")[0], tool), {}),
            }
        )
    return make_json_page({"attempts": sorted(shown, key=lambda row: not row["waiting"])})


def is_waiting(key: str, episode: Episode, limits: Mapping[str, AttemptsPolicy]) -> bool:
    """Returns whether an episode has escalated, so that its model had to stop."""
    if not contract.is_attempts(key):
        return refusals.is_blocked(key)
    limit = limits.get(contract.read_tool(key)) or AttemptsPolicy()
    standing = refusals.read_standing(key, episode, limit)
    return standing.number >= standing.limit


def _last_seen(data: ConsoleData | None) -> dict[tuple[str, str], dict[str, JsonValue]]:
    """Finds, for each conversation and tool among the kept calls, its last failure and the source of its id."""
    found: dict[tuple[str, str], dict[str, JsonValue]] = {}
    if data is not None:
        wrong = (kept for kept in data.recent.newest() if read_value(kept, "outcome") in ("refused", "tool_error"))
        for entry in map(make_entry, wrong):
            who = (str(entry.get("conversation", "")), str(entry.get("gen_ai.tool.name", "")))
            latest = {"last": entry["timestamp"], "source": entry.get("conversation.source")}
            found.setdefault(who, latest)
            if entry.get("error.code") == codes.UNKNOWN_TOOL.name:  # the store counts these under the tool ''
                found.setdefault((who[0], ""), latest)
    return found


async def _find_conversations(serving: Serving, question: PageRequest) -> Page:
    """Finds the hashes that the proxy may use for a conversation that its client calls `name`."""
    name = question.body.get("name")
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        return refuse_question("say `name`: what the client sends as its conversation id")
    return make_json_page({"conversations": list(dict.fromkeys(_hashes(serving, name, "")))})


def _hashes(serving: Serving, name: str, rung: str) -> Iterator[str]:
    """Yields a hash of the conversation `name` for each rung of each served route, or for the rung `rung` only.

    The rung is part of the hash. A client address is never searched for: no client chooses it as a name.
    """
    for route in serving.handler.snapshot.table.routes:
        for source in route.shape.ladder:
            if source.kind != "address" and rung in ("", source.kind):
                yield contract.hash_conversation(make_conversation(source, name))


def list_limits(serving: Serving) -> dict[str, AttemptsPolicy]:
    """Returns the retry contract of each tool by name, '' for unknown tools. If routes differ, the one with the fewest
    attempts counts."""
    found: dict[str, AttemptsPolicy] = {}
    known = [(name, policy.attempts) for (_, name), policy in list_current_tools(serving).items()]
    unknown = [("", route.unknown.attempts) for route in serving.handler.snapshot.table.routes]
    for name, attempts in (*known, *unknown):
        found[name] = min(attempts, found.get(name, attempts), key=lambda each: each.max_attempts)
    return found


async def _reset_attempts(serving: Serving, question: PageRequest) -> Page:
    store = serving.handler.snapshot.services.store
    key, tool, everything = (question.body.get(name) for name in ("key", "tool", "all"))
    if isinstance(key, str) and len(question.body) == 1:
        keys = list(dict.fromkeys((key, refusals.read_cause(key))))
    elif (isinstance(tool, str) or everything is True) and len(question.body) == 1:
        keys = [known for known, _ in await store.list_episodes() if everything or contract.read_tool(known) == tool]
    else:
        return refuse_question("say one of `key` (as /-/attempts shows it), `tool`, or `all: true`")
    endings = [await store.clear(key, forget=True) for key in keys]
    gone = [await ended if isinstance(ended, asyncio.Future) else ended for ended in endings]
    count = sum(episode is not None for episode in gone)
    serving.log.event("attempts reset", count=count, role=question.role, address=question.address)
    return make_json_page({"reset": count})


# --- what is done -----------------------------------------------------------------------------------------------------
async def _reload(serving: Serving, question: PageRequest) -> Page:
    serving.log.event("reload asked for", role=question.role, address=question.address)
    reloaded = await serving.reloader.reload()
    shown: JsonValue = {"result": reloaded.result, "digest": reloaded.digest,
                        "restart_needed": list(reloaded.restart_needed)}  # fmt: skip
    if reloaded.result == "failure":
        return make_json_page({**shown, "mistakes": list(reloaded.mistakes)}, 422)
    return make_json_page(shown)


async def _drain(serving: Serving, question: PageRequest) -> Page:
    seconds = question.body.get("seconds")
    if seconds is not None:
        if isinstance(seconds, str | bool | list | dict) or not (seconds := float(make_decimal(seconds))) >= 0:
            return refuse_question("`seconds` is a number that is not negative")
        seconds = min(seconds, _LONGEST_DRAIN)
    with_tools = question.body.get("with_tools", False)
    if not isinstance(with_tools, bool):
        return refuse_question("`with_tools` is true or false")
    serving.log.event("drain asked for", role=question.role, address=question.address)
    serving.begin_drain(seconds, with_tools=with_tools)
    return await _show_drain(serving, question)


async def _show_drain(serving: Serving, _: PageRequest) -> Page:
    return make_json_page(
        {"draining": serving.handler.draining, "drained": serving.drained, "inflight": serving.handler.inflight}
    )


async def _level(serving: Serving, _: PageRequest) -> Page:
    return make_json_page({"level": serving.log.level})


async def _set_level(serving: Serving, question: PageRequest) -> Page:
    level = question.body.get("level")
    if level not in LEVELS:
        return refuse_question(f"say `level`, one of: {', '.join(LEVELS)}")
    serving.log.level = level
    serving.log.event("log level set", level_set=level, role=question.role, address=question.address)
    return await _level(serving, question)


Make = Callable[[PageRequest], Awaitable[Page | EventPage]]
# path -> method -> the function that answers. A path that ends in a slash matches the paths that begin with it; the
# part behind the slash becomes `PageRequest.rest`.
Pages = Mapping[str, Mapping[str, Make]]

PROBES: Final = frozenset({"/livez", "/startupz", "/readyz", "/readyz/upstream/", "/metrics"})

PAGES: Final[Mapping[str, Mapping[str, Callable[[Serving, PageRequest], Awaitable[Page | EventPage]]]]] = {
    "/livez": {"GET": _alive},
    "/startupz": {"GET": _alive},
    "/readyz": {"GET": _ready},
    "/readyz/upstream/": {"GET": _upstream_ready},
    "/metrics": {"GET": _metrics},
    "/-/routes": {"GET": _routes},
    "/-/config": {"GET": _config},
    "/-/schemas/": {"GET": _schema},
    "/-/reloads": {"GET": _reloads},
    "/-/attempts": {"GET": _attempts},
    "/-/conversations": {"GET": _attempts},
    "/-/conversations/find": {"POST": _find_conversations},
    "/-/attempts/reset": {"POST": _reset_attempts},
    "/-/reload": {"POST": _reload},
    "/-/drain": {"GET": _show_drain, "POST": _drain},
    "/-/log-level": {"GET": _level, "POST": _set_level},
}


def make_pages(serving: Serving) -> Pages:
    """Returns the pages of one running proxy. With `console: off` the console's files (`/ui/`) are left out."""
    shown = serving.console is not None and serving.console.counts is not None
    added: dict[str, dict[str, Callable[[Serving, PageRequest], Awaitable[Page | EventPage]]]] = {
        path: {page.method: partial(plugin.answer_page, path)}
        for plugin in find_plugins(AddsPages)
        for path, page in plugin.pages.items()
    }
    return {
        path: {name: partial(make, serving) for name, make in made.items()}
        for path, made in {**PAGES, **added}.items()
        if shown or not path.startswith("/ui/")
    }
