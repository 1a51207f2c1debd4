"""The plugin `chat`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from proxy.plugin import ExtendsVerbs, Flag, NoConfig, SpeaksProtocol

if TYPE_CHECKING:
    import argparse
    from contextlib import ExitStack
    from pathlib import Path

    from proxy.config.keys.kinds import Kind
    from proxy.extensions.chat.server.model_relay import ModelRelay
    from proxy.plugin import Adapter, Clock, MetricRow, Reports, Serving


class ChatPlugin(ExtendsVerbs, SpeaksProtocol):
    """Judges and repairs the tool calls in the answers of model servers."""

    name = "chat"
    adds = "model servers: the tool calls in their answers are judged and repaired before the agent reads them"
    uses = ("mcp",)
    relay_key = "model"
    relay_policy_keys = ("repair", "null_optional", "unknown_keys", "leaked_markup", "feedback", "formats")
    adapter = "model"

    def declare_keys(self) -> Mapping[str, Kind]:
        from proxy.extensions.chat.config import KEYS

        return KEYS

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.chat.server.model_relay import METRICS

        return METRICS

    def list_no_config(self) -> Sequence[NoConfig]:
        model = Flag("--model", "without a config: repair the tool calls of the model server at URL", metavar="URL")
        reads = "with --model: which texts become calls: none (off, default), call markup (leaked), also JSON (json)"
        texts = Flag("--text-calls", reads, choices=("off", "leaked", "json"), default="off")
        most = "with --model: serve at most N streams at the same time (default: 2048)"
        streams = Flag("--connections", most, metavar="N", type=int)
        return (
            NoConfig(
                model,
                _make_config_file,
                flags=(texts, streams),
                shares=frozenset(["admin", "wait"]),
                find_trouble=_find_trouble,
            ),
        )

    def list_evaluations(self) -> Mapping[str, Callable[[argparse.Namespace], int]]:
        """Side of `evaluate` -> what measures it."""
        return {"model": _evaluate}

    def prepare(self) -> None:
        from proxy.extensions.chat.server import model_relay  # noqa: F401

    def make_relay(self, clock: Clock, reports: Reports) -> ModelRelay:
        from proxy.extensions.chat.server.model_relay import ModelRelay

        return ModelRelay(clock, reports)

    def load_adapter(self) -> Adapter:
        from proxy.extensions.chat.adapters import ADAPTER

        return ADAPTER


def _make_config_file(args: argparse.Namespace, kept: ExitStack) -> Path | None:
    from proxy.extensions.chat.cli.model_config import make_config_file

    return make_config_file(args, kept)


async def _find_trouble(args: argparse.Namespace, _serving: Serving) -> tuple[list[str], bool]:
    from proxy.extensions.chat.cli.model_config import find_trouble

    return await find_trouble(args.model), True


def _evaluate(args: argparse.Namespace) -> int:
    from proxy.extensions.chat.cli.evaluate_model import run

    return run(args)
