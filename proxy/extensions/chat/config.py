"""The key `model` of a route: how the answers of a model server are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.sections.units import read_seconds, read_size
from proxy.core.model.value_class import value_class

if TYPE_CHECKING:
    from proxy.plugin import WrittenRoute


@value_class
class ModelSettings:
    """The settings for reading a route's requests and answers. `max_request` and `max_answer` in bytes: longer ones are
    relayed unread. `text_calls`: which texts of an answer become calls: none (`off`), those in a model's markup, or
    also a message that is one JSON object. `retries`: how often the proxy asks the model again when its calls cannot be
    repaired, within `retry_deadline` seconds and `retry_tokens` tokens for one request. `mode`: whether an answer whose
    calls stay wrong passes or is refused."""

    text_calls: Literal["off", "leaked", "json"] = "off"
    mode: Literal["pass", "refuse"] = "pass"
    retries: int = 0
    retry_deadline: float = 60.0
    retry_tokens: int = 50_000
    max_request: int = 16 * 1024 * 1024
    max_answer: int = 4 * 1024 * 1024


def read_model(context: Context, route: WrittenRoute) -> ModelSettings:
    """Reads the key of one route."""
    written = context.mapping(*route.at, "model")
    sizes = {key: read_size(written[key]) for key in ("max_request", "max_answer") if key in written}
    made: dict[str, Any] = {**sizes, **{key: written[key] for key in ("retries", "retry_tokens") if key in written}}
    if "retry_deadline" in written:
        made["retry_deadline"] = read_seconds(written["retry_deadline"])
    if "mode" in written:
        made["mode"] = reveal(written["mode"])
    if "text_calls" in written:
        made["text_calls"] = "off" if written["text_calls"] is False else reveal(written["text_calls"])
    return ModelSettings(**made)
