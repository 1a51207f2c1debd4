"""Failures on routes with `model`: worded for a model server, in the error format of the request's API."""

from __future__ import annotations

from typing import Final

from proxy.adapters import PlainAdapter
from proxy.core.envelope import Detail
from proxy.core.envelope.parts import make_failure_headers
from proxy.core.json.jsontext import dumps
from proxy.core.model import codes
from proxy.core.model.codes import ErrorCode
from proxy.core.model.values import HttpReply, RawRequest, ToolResult
from proxy.extensions.chat.core.events import make_error
from proxy.extensions.chat.core.model_request import Api
from proxy.plugin import write_feedback

# The meaning of these codes for a model server.
_MEANINGS: Final[dict[ErrorCode, str]] = {
    codes.UPSTREAM_UNAVAILABLE: "The model server could not be reached.",
    codes.UPSTREAM_TIMEOUT: "The model server did not answer in time.",
    codes.UPSTREAM_BAD_ANSWER: "The model server broke off or gave no valid answer.",
    codes.OVERLOADED: "Too many requests to the model server are under way.",
    codes.CIRCUIT_OPEN: "The model server failed repeatedly, so it gets no calls for a moment.",
}


def write_message(result: ToolResult) -> str:
    """A failure's text for the client."""
    failure = result.failure
    if result.call.tool:
        return f"The model's call is refused. {write_feedback(result)}"
    meaning, usual = _MEANINGS.get(failure.code), failure.code.meaning
    if meaning is None or not failure.message.startswith(usual):
        return failure.message
    return meaning + failure.message.removeprefix(usual)


def find_error_api(request: RawRequest | None) -> Api:
    """The API whose error format the client reads: Anthropic's by its path, OpenAI's at every other path."""
    if request is None:
        return Api.CHAT
    is_anthropic = request.header("anthropic-version") is not None or "/v1/messages" in request.path
    return Api.MESSAGES if is_anthropic else Api.CHAT


class ModelAdapter(PlainAdapter):
    """Implements `Adapter` for routes with `model`, whose requests are relayed."""

    name = "model"

    def encode(
        self,
        result: ToolResult,
        envelope: str,  # noqa: ARG002 - Adapter's signature
        error_status: str,  # noqa: ARG002 - Adapter's signature
        accept: str = "",  # noqa: ARG002 - Adapter's signature
        request: RawRequest | None = None,
        detail: Detail = "compact",  # noqa: ARG002 - Adapter's signature
    ) -> HttpReply:
        """A failure as an error of the API."""
        failure, api = result.failure, find_error_api(request)
        body = make_error(api, failure.http_status, failure.code.name, write_message(result))
        form = "anthropic_error/1" if api is Api.MESSAGES else "openai_error/1"
        return HttpReply(failure.http_status, make_failure_headers(result, form, "application/json"), dumps(body))


ADAPTER: Final = ModelAdapter()
