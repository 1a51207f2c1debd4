"""The key `model` of a route: how the answers of a model server are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from proxy.config.combinations import WrittenRoute
from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.sections.units import read_size


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How a route reads what passes. `max_request` and `max_answer` in bytes: longer ones are relayed unread.
    `text_calls`: what becomes a call that stands in the text of an answer: nothing, what has a model's markup, or a
    message that is nothing but a JSON object, too."""

    text_calls: Literal["off", "markup", "json"] = "markup"
    max_request: int = 16 * 1024 * 1024
    max_answer: int = 4 * 1024 * 1024


def read_model(context: Context, route: WrittenRoute) -> ModelSettings:
    """Reads the key of one route."""
    written = context.mapping(*route.at, "model")
    sizes = {key: read_size(written[key]) for key in ("max_request", "max_answer") if key in written}
    made: dict[str, Any] = {**sizes}
    if "text_calls" in written:
        made["text_calls"] = "off" if written["text_calls"] is False else reveal(written["text_calls"])
    return ModelSettings(**made)
