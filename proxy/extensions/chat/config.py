"""The key `model` of a route: how the answers of a model server are read."""

from __future__ import annotations

from typing import Final, Literal

from proxy.config.keys.kinds import DURATION, SIZE, ConfigKey, choice, mapping, number
from proxy.core.model.value_class import value_class


@value_class
class ModelSettings:
    """The settings for reading a route's requests and answers, as `MODEL` describes them."""

    text_calls: Literal["off", "leaked", "json"] = "off"
    mode: Literal["pass", "refuse"] = "pass"
    retries: int = 0
    retry_deadline: float = 60.0
    retry_tokens: int = 50_000
    max_request: int = 16 * 1024 * 1024
    max_answer: int = 4 * 1024 * 1024


MODEL: Final = mapping(
    ModelSettings,
    ConfigKey(
        "text_calls",
        choice("off", "leaked", "json", False),
        "Tool calls that a server leaves in a model's text. `off`: they stay text. `leaked`: they become calls if the "
        "answer is only a model's markup. `json`: also if it is a JSON object with `name` and `arguments`.",
    ),
    ConfigKey(
        "mode",
        choice("pass", "refuse"),
        "Handling of an answer whose calls stay invalid. `pass`: it passes, marked by `Tool-Error` if it is in one "
        "piece. `refuse`: it is replaced by 502, or the API's error event ends a stream that has begun. `refuse` also "
        "refuses requests (400) and answers (502) that cannot be read.",
    ),
    ConfigKey(
        "retries", number(minimum=0, maximum=5), "The number of retries if a call of the model cannot be repaired."
    ),
    ConfigKey("retry_deadline", DURATION, "The time for asking again in one request."),
    ConfigKey(
        "retry_tokens",
        number(minimum=0, maximum=10_000_000),
        "The tokens that asking again may take in one request; a question is taken to cost what the last one did, one "
        "without reported usage a token for each byte.",
    ),
    ConfigKey("max_request", SIZE, "A longer request is relayed unread, or refused in mode `refuse`."),
    ConfigKey("max_answer", SIZE, "A longer answer is relayed unread, or refused in mode `refuse`."),
)
_DESCRIPTION: Final = (
    "A model server (OpenAI or Anthropic): everything below the path is relayed, and the tool calls in its answers are "
    "judged by the request's own tools and repaired."
)
KEYS: Final = {"route": mapping(None, ConfigKey("model", MODEL, _DESCRIPTION))}
