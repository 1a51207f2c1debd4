"""The page `/-/conversations`, or `/-/attempts`: the conversations that failed lately, with their attempts at each tool
and whether they wait for a human."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proxy.core.contract import attempts as contract
from proxy.core.contract import refusals
from proxy.core.contract.policy import AttemptsPolicy
from proxy.core.model import codes
from proxy.core.model.values import Episode, JsonValue
from proxy.server.admin.console_data import ConsoleData
from proxy.telemetry.recent.ring import make_entry, read_value


def list_attempts(
    episodes: Iterable[tuple[str, Episode]],
    limits: Mapping[str, AttemptsPolicy],
    data: ConsoleData | None,
    *,
    waiting: bool,
) -> list[JsonValue]:
    """Returns the episodes as JSON rows; those that wait for a human stand first.

    `limits` gives the policy of each tool. With `waiting`, only episodes that have escalated are listed. A tool's
    errors that have escalated are one row with the calls that were refused for them.
    """
    seen, shown, running = _last_seen(data), list[JsonValue](), dict(episodes)
    for key, episode in running.items():
        tool, is_over = contract.read_tool(key), is_waiting(key, episode, limits)
        if (episode.count == 0 and not is_over) or (waiting and not is_over):
            continue
        if refusals.make_blocked_key(key) in running:
            continue
        standing = refusals.read_standing(key, episode, _limit_of(tool, limits))
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
    return sorted(shown, key=lambda row: not row["waiting"])


def is_waiting(key: str, episode: Episode, limits: Mapping[str, AttemptsPolicy]) -> bool:
    """Whether an episode has escalated, so that its model was told to stop."""
    if not contract.is_attempts(key):
        return refusals.is_blocked(key)
    standing = refusals.read_standing(key, episode, _limit_of(contract.read_tool(key), limits))
    return standing.number >= standing.limit


def _limit_of(tool: str, limits: Mapping[str, AttemptsPolicy]) -> AttemptsPolicy:
    return limits.get(tool) or AttemptsPolicy()


def _last_seen(data: ConsoleData | None) -> dict[tuple[str, str], dict[str, JsonValue]]:
    """Finds, for each conversation and tool among the kept calls, its last failure and the source of its id."""
    found: dict[tuple[str, str], dict[str, JsonValue]] = {}
    if data is not None:
        wrong = (kept for kept in data.recent.newest() if read_value(kept, "outcome") in ("refused", "tool_error"))
        for entry in map(make_entry, wrong):
            who = (str(entry.get("conversation", "")), str(entry.get("gen_ai.tool.name", "")))
            told = {"last": entry["timestamp"], "source": entry.get("conversation.source")}
            found.setdefault(who, told)
            if entry.get("error.code") == codes.UNKNOWN_TOOL.name:  # the store counts these under the tool ''
                found.setdefault((who[0], ""), told)
    return found
