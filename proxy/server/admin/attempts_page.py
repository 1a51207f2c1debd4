"""The page `/-/conversations`, or `/-/attempts`: the conversations that failed lately, with their attempts at each tool
and whether they wait for a human."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proxy.core.contract import attempts as contract
from proxy.core.contract.history import write_history
from proxy.core.contract.policy import AttemptsPolicy
from proxy.core.model import codes
from proxy.core.model.values import Episode, JsonValue
from proxy.server.admin.console_data import ConsoleData
from proxy.telemetry.recent.ring import CallFilter, make_entry


def list_attempts(
    episodes: Iterable[tuple[str, Episode]], limits: Mapping[str, int], data: ConsoleData | None, *, waiting: bool
) -> list[JsonValue]:
    """Returns the episodes as JSON rows; those that wait for a human stand first.

    `limits` gives `max_attempts` by tool. With `waiting`, only episodes that have used up their attempts are listed.
    """
    seen, shown = _last_seen(data), list[JsonValue]()
    for key, episode in episodes:
        tool, is_over = contract.read_tool(key), is_waiting(key, episode, limits)
        if (episode.count == 0 and not is_over) or (waiting and not is_over):
            continue
        shown.append(
            {
                "key": key,
                "conversation": key.partition("/")[0],
                "tool": tool,
                "kind": "attempts" if contract.is_attempts(key) else "tool_errors",
                "attempts": _attempt_of(episode),
                "max_attempts": limits.get(tool, AttemptsPolicy().max_attempts),
                "calls": episode.failed,
                "waiting": is_over,
                "history": list(write_history(episode)),
                **seen.get((key.partition("/")[0], tool), {}),
            }
        )
    return sorted(shown, key=lambda row: not row["waiting"])


def is_waiting(key: str, episode: Episode, limits: Mapping[str, int]) -> bool:
    """Whether an episode has used up its attempts, so that its model was told to stop."""
    limit = limits.get(contract.read_tool(key), AttemptsPolicy().max_attempts)
    return contract.is_attempts(key) and _attempt_of(episode) >= limit


def _attempt_of(episode: Episode) -> int:
    return max([episode.count, *(times for _, times in episode.digests)])


def _last_seen(data: ConsoleData | None) -> dict[tuple[str, str], dict[str, JsonValue]]:
    """Finds, for each conversation and tool among the kept calls, its last failure and the source of its id."""
    found: dict[tuple[str, str], dict[str, JsonValue]] = {}
    if data is not None:
        wrong = CallFilter(outcome=frozenset({"refused", "tool_error"}))
        for entry in map(make_entry, data.recent.select(wrong)):
            who = (str(entry.get("conversation", "")), str(entry.get("gen_ai.tool.name", "")))
            told = {"last": entry["timestamp"], "source": entry.get("conversation.source")}
            found.setdefault(who, told)
            if entry.get("error.code") == codes.UNKNOWN_TOOL.name:  # the store counts these under the tool ''
                found.setdefault((who[0], ""), told)
    return found
