"""A scripted endpoint in place of a model, for the demo: it speaks OpenAI's chat completions and knows two answers.

The script finds the tool's name and the arguments in the proxy's bundled prompts, replaces values by its table, and
answers in the requested form. To anything else it answers that it cannot help.
"""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

DEFAULT_MODEL_PORT: Final = 9102
# The largest request read: the proxy's prompts have some thousand bytes.
_LONGEST: Final = 1024 * 1024
# (tool, argument, sent value) -> the right value.
ANSWERS: Final[dict[tuple[str, str, str], Any]] = {("convert", "amount", "five"): 5, ("convert", "to", "Euro"): "EUR"}
_TOOL: Final = re.compile(r"^Tool: (.+)$", re.MULTILINE)
_ARGUMENTS: Final = re.compile(r"^Arguments:\n(.+)$", re.MULTILINE)
# Only layer 4's prompt holds this.
_WISH: Final = "User's wish:"


def answer_prompt(prompt: str) -> dict[str, Any]:
    """The script's answer to a prompt: a verdict in the shape of the layer that asks."""
    tool, arguments = _TOOL.search(prompt), _ARGUMENTS.search(prompt)
    name, sent = tool[1] if tool else "", json.loads(arguments[1]) if arguments else {}
    known = {key: ANSWERS[name, key, value] for key, value in _list_texts(sent) if (name, key, value) in ANSWERS}
    analysis = "This answer is part of a script." if known else "The script knows no answer to this."
    if _WISH in prompt:
        return {
            "should_retry": bool(known),
            "is_transient_error": False,
            "analysis": analysis,
            "suggested_changes": known,
        }
    if not known:
        return {"can_fix": False, "analysis": analysis, "corrected_payload": None}
    return {"can_fix": True, "analysis": analysis, "corrected_payload": {**sent, **known}}


def _list_texts(sent: object) -> list[tuple[str, str]]:
    return [(key, value) for key, value in sent.items() if isinstance(value, str)] if isinstance(sent, dict) else []


class ScriptedModel(ThreadingHTTPServer):
    """Listens on 127.0.0.1. Raises OSError if the port is taken; port 0 takes any free one."""

    daemon_threads = True

    def __init__(self, port: int = DEFAULT_MODEL_PORT) -> None:
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 16 * 1024  # head and body in one packet

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LONGEST:
            self.close_connection = True
            self._send(413, {"error": {"message": "send a Content-Length of at most 1 MiB"}})
            return
        try:
            request = json.loads(self.rfile.read(int(length)))
            prompt = "\n".join(str(message["content"]) for message in request["messages"])
            content = json.dumps(answer_prompt(prompt))
        except (ValueError, KeyError, TypeError):
            self._send(400, {"error": {"message": "this is not a chat completion"}})
            return
        message = {"role": "assistant", "content": content}
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(content) // 4}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._send(200, {
            "id": "scripted", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice],
            "usage": {**usage, "total_tokens": sum(usage.values())},
        })  # fmt: skip

    def _send(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Logs nothing: the proxy's log shows the questions."""
