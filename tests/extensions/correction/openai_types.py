# mypy: ignore-errors
"""Runs in .parties/sdk: holds requests and an answer of the chat completions against the OpenAI SDK's own types, with
keys that they do not know forbidden.

Standard input: {"requests", "completion"}. Standard output: what is wrong, nothing if all is right.
"""

from __future__ import annotations

import json
import sys

from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import ConfigDict, TypeAdapter, ValidationError

CompletionCreateParamsNonStreaming.__pydantic_config__ = ConfigDict(extra="forbid")

given = json.load(sys.stdin)
takes = TypeAdapter(CompletionCreateParamsNonStreaming).validate_python
for judge, name, value in (
    *((takes, f"request {number}", request) for number, request in enumerate(given["requests"])),
    (ChatCompletion.model_validate, "completion", given["completion"]),
):
    try:
        judge(value)
    except ValidationError as error:
        sys.stdout.write("".join(f"{name}: {each['loc']} {each['type']}\n" for each in error.errors()))
