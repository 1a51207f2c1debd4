# mypy: ignore-errors
"""Runs in .parties/sdk: holds exported tools against the vendors' own types, with keys they do not know forbidden.

Standard input: a line per tool, {"vendor", "tool"}. Standard output: a line per tool, '' or what is wrong with it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mcp.types
from anthropic.types import JSONOutputFormatParam, ToolParam
from google.genai.types import FunctionDeclaration, GenerateContentConfig
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.shared_params import FunctionDefinition, ResponseFormatJSONSchema
from pydantic import ConfigDict, TypeAdapter, ValidationError

STRICT = ConfigDict(extra="forbid")
for typed in (
    ChatCompletionFunctionToolParam,
    FunctionDefinition,
    ToolParam,
    ResponseFormatJSONSchema,
    JSONOutputFormatParam,
):
    typed.__pydantic_config__ = STRICT


class StrictTool(mcp.types.Tool):
    """MCP's tool, which allows further keys, without them."""

    model_config = STRICT


JUDGES: dict[str, Any] = {
    "openai": TypeAdapter(ChatCompletionFunctionToolParam).validate_python,
    "anthropic": TypeAdapter(ToolParam).validate_python,
    "gemini": FunctionDeclaration.model_validate,
    "mcp": StrictTool.model_validate,
    "openai output": lambda made: TypeAdapter(ResponseFormatJSONSchema).validate_python(made["response_format"]),
    "anthropic output": lambda made: TypeAdapter(JSONOutputFormatParam).validate_python(made["output_format"]),
    "gemini output": GenerateContentConfig.model_validate,
}


def verdict(vendor: str, tool: object) -> str:
    """'' for a tool that its vendor's type takes, else what is wrong."""
    try:
        JUDGES[vendor](tool)
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['type']}" for each in error.errors()[:5])
    return ""


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(verdict(asked["vendor"], asked["tool"]) + "\n")
