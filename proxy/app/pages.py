"""What the operator's port shows and does: one function per path, listed in `PAGES`.

Each takes the proxy and a `Question` and gives a `Page`. What changes something is done by POST alone. No page shows a
value of a call or a secret of the config.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from proxy.app import trial
from proxy.app.guiding import guide
from proxy.app.question import Page, Question, json_page, unfit
from proxy.config.model import Config
from proxy.config.secrets import as_written
from proxy.core.jsontext import as_decimal
from proxy.core.model import JsonValue
from proxy.telemetry.logs import LEVELS

if TYPE_CHECKING:
    from proxy.app.serving import Serving

_LONGEST_DRAIN: Final = 3600.0


# --- probes: from this process alone, never the upstream or the store -------------------------------------------------
async def _alive(_serving: Serving, _asked: Question) -> Page:
    return json_page({"status": "ok"})


async def _ready(serving: Serving, _: Question) -> Page:
    handler = serving.handler
    if handler.draining:
        return json_page({"status": "draining", "inflight": handler.inflight}, 503)
    return json_page({"status": "ok"})


async def _metrics(serving: Serving, _: Question) -> Page:
    await serving.metrics.prepare_page()
    content_type, text = serving.metrics.page()
    return Page(text, content_type=content_type)


# --- what is served ---------------------------------------------------------------------------------------------------
async def _routes(serving: Serving, _: Question) -> Page:
    shown = [
        {
            "name": route.name,
            "path": route.path,
            "methods": sorted(route.methods),
            "kind": route.kind,
            "protocol": route.adapter,
            "upstream": route.upstream,
            "tools": {
                name: {"mode": policy.mode.value, "schema_id": policy.schema_id} for name, policy in route.tools.items()
            },
        }
        for route in serving.handler.snapshot.table.routes
    ]
    return json_page({"routes": shown})


async def _config(serving: Serving, _: Question) -> Page:
    served = serving.reloader.served
    shown: JsonValue = {
        "digest": served.loaded.digest,
        "restart_needed": list(served.restart_needed),
        "mistakes": list(serving.reloader.mistakes),
        "config": as_written(served.loaded.config.written),
    }
    return json_page(shown)


async def _schema(serving: Serving, asked: Question) -> Page:
    found = _schemas(serving.config, asked.rest)
    if not found:
        return unfit(f"no tool {asked.rest[:128]!r} with a schema is served", 404)
    return json_page({"tool": asked.rest, "schemas": list(found.values())})


def _schemas(config: Config, tool: str) -> dict[str, JsonValue]:
    """The schemas of a tool by id: routes may give one tool different ones."""
    found: dict[str, JsonValue] = {}
    for route in config.routes:
        served = route.tools.get(tool) or (route.mcp.tools.get(tool) if route.mcp is not None else None)
        if served is None or served.schema is None:
            continue
        shown = found.setdefault(
            served.schema.schema_id,
            {"schema_id": served.schema.schema_id, "routes": [], "notes": list(served.schema.notes),
             "schema": served.schema.value},
        )  # fmt: skip
        shown["routes"].append(route.name)
    return found


# --- what happened ----------------------------------------------------------------------------------------------------
async def _calls(serving: Serving, asked: Question) -> Page:
    wanted = parse_qs(asked.query).get("request_id")
    return json_page({"calls": list(serving.recent.entries(wanted[0] if wanted else None))})


async def _attempts(serving: Serving, _: Question) -> Page:
    episodes = await serving.handler.snapshot.services.store.episodes()
    shown = [
        {
            "key": key,
            "tool": key.partition("/")[2],
            "attempts": episode.count,
            "repeats": episode.repeats,
        }
        for key, episode in episodes
    ]
    return json_page({"attempts": shown})


async def _reset_attempts(serving: Serving, asked: Question) -> Page:
    store = serving.handler.snapshot.services.store
    key, tool, everything = (asked.body.get(name) for name in ("key", "tool", "all"))
    if isinstance(key, str) and len(asked.body) == 1:
        keys = [key]
    elif (isinstance(tool, str) or everything is True) and len(asked.body) == 1:
        keys = [known for known, _ in await store.episodes() if everything or known.partition("/")[2] == tool]
    else:
        return unfit("say one of `key` (as /-/attempts shows it), `tool`, or `all: true`")
    gone = [await store.clear(key) for key in keys]
    count = sum(episode is not None for episode in gone)
    serving.log.event("attempts reset", count=count)
    return json_page({"reset": count})


# --- what is done -----------------------------------------------------------------------------------------------------
async def _reload(serving: Serving, _: Question) -> Page:
    reloaded = await serving.reloader.reload()
    shown: JsonValue = {"result": reloaded.result, "digest": reloaded.digest,
                        "restart_needed": list(reloaded.restart_needed)}  # fmt: skip
    if reloaded.result == "failure":
        return json_page({**shown, "mistakes": list(reloaded.mistakes)}, 422)
    return json_page(shown)


async def _drain(serving: Serving, asked: Question) -> Page:
    seconds = asked.body.get("seconds")
    if seconds is not None:
        if isinstance(seconds, str | bool | list | dict) or not (seconds := float(as_decimal(seconds))) >= 0:
            return unfit("`seconds` is a number that is not negative")
        seconds = min(seconds, _LONGEST_DRAIN)
    serving.begin_drain(seconds)
    return await _drained(serving, asked)


async def _drained(serving: Serving, _: Question) -> Page:
    return json_page(
        {"draining": serving.handler.draining, "drained": serving.drained, "inflight": serving.handler.inflight}
    )


async def _validate(serving: Serving, asked: Question) -> Page:
    snapshot = serving.handler.snapshot
    found = trial.asked(snapshot, asked.body)
    if isinstance(found, str):
        return unfit(found)
    return json_page(await trial.judged(*found, snapshot.services))


async def _level(serving: Serving, _: Question) -> Page:
    return json_page({"level": serving.log.level})


async def _set_level(serving: Serving, asked: Question) -> Page:
    level = asked.body.get("level")
    if level not in LEVELS:
        return unfit(f"say `level`, one of: {', '.join(LEVELS)}")
    serving.log.level = level
    return await _level(serving, asked)


Make = Callable[[Question], Awaitable[Page]]
# path -> method -> what makes the answer. A path that ends in a slash takes one more segment.
Pages = Mapping[str, Mapping[str, Make]]

PROBES: Final = frozenset({"/livez", "/startupz", "/readyz", "/metrics"})

PAGES: Final[Mapping[str, Mapping[str, Callable[[Serving, Question], Awaitable[Page]]]]] = {
    "/livez": {"GET": _alive},
    "/startupz": {"GET": _alive},
    "/readyz": {"GET": _ready},
    "/metrics": {"GET": _metrics},
    "/-/routes": {"GET": _routes},
    "/-/config": {"GET": _config},
    "/-/schemas/": {"GET": _schema},
    "/-/guidance": {"GET": guide},
    "/-/calls": {"GET": _calls},
    "/-/attempts": {"GET": _attempts},
    "/-/attempts/reset": {"POST": _reset_attempts},
    "/-/reload": {"POST": _reload},
    "/-/drain": {"GET": _drained, "POST": _drain},
    "/-/validate": {"POST": _validate},
    "/-/log-level": {"GET": _level, "POST": _set_level},
}


def pages_of(serving: Serving) -> Pages:
    """The pages of one running proxy."""
    return {path: {name: partial(make, serving) for name, make in made.items()} for path, made in PAGES.items()}
