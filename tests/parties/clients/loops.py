"""Agent loops with a scripted model: a wrong call, then, after the error, the right one.

Runs in `.parties/py1`. Usage: loops.py FRAMEWORK JOBS, each job a URL and calls of the tool `book`, all as JSON. Prints
for each job the answer to the model after each call, and how the run ended. No network but the URLs is used.
"""
# mypy: ignore-errors
# ruff: noqa: ARG002 - the frameworks say what a model takes
# The parties are not dependencies of the product, so their types are not there to be checked.

import asyncio
import json
import logging
import os
import sys
from typing import Any

DONE = "The book is ordered."

os.environ |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false", "LOGFIRE_IGNORE_NO_CONFIG": "1"}


def plain(content: Any) -> str:
    """The text of a tool's answer, however a framework wraps it."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(plain(part) for part in content)
    if isinstance(content, dict):
        return str(content["text"]) if "text" in content else json.dumps(content)
    return str(getattr(content, "text", content))


async def langchain(url: str, calls: list[Any]) -> dict[str, Any]:
    from langchain.agents import create_agent
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_mcp_adapters.client import MultiServerMCPClient

    told: list[str] = []

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **more: Any) -> Any:
            return self

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> Any:
            answers = [plain(message.content) for message in messages if isinstance(message, ToolMessage)]
            told[:] = answers
            if len(answers) == len(calls):
                return ChatResult(generations=[ChatGeneration(message=AIMessage(DONE))])
            asked = {"name": "book", "args": calls[len(answers)], "id": f"call_{len(answers)}"}
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[asked]))])

    client = MultiServerMCPClient({"shop": {"url": url, "transport": "streamable_http"}})
    agent = create_agent(Scripted(), await client.get_tools())
    state = await agent.ainvoke({"messages": [("user", "Order Emma.")]})
    return {"told": told, "end": plain(state["messages"][-1].content)}


async def openai_agents(url: str, calls: list[Any]) -> dict[str, Any]:
    from agents import Agent, Model, ModelResponse, Runner, Usage
    from agents.mcp import MCPServerStreamableHttp
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    told: list[str] = []

    class Scripted(Model):
        async def get_response(self, *words: Any, **named: Any) -> Any:
            asked = named.get("input", words[1] if len(words) > 1 else [])
            outputs = [item for item in asked if isinstance(item, dict) and item.get("type") == "function_call_output"]
            told[:] = [plain(item["output"]) for item in outputs]
            if len(told) == len(calls):
                text = ResponseOutputText(text=DONE, type="output_text", annotations=[])
                part: Any = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                arguments, number = json.dumps(calls[len(told)]), len(told)
                part = ResponseFunctionToolCall(
                    arguments=arguments, call_id=f"call_{number}", name="book", type="function_call", id=f"f{number}"
                )
            return ModelResponse(output=[part], usage=Usage(), response_id=None)

        def stream_response(self, *words: Any, **named: Any) -> Any:
            raise NotImplementedError

    async with MCPServerStreamableHttp(params={"url": url}, client_session_timeout_seconds=30) as server:
        agent = Agent(name="clerk", model=Scripted(), mcp_servers=[server])
        result = await Runner.run(agent, "Order Emma.")
    return {"told": told, "end": result.final_output}


async def pydantic_ai(url: str, calls: list[Any]) -> dict[str, Any]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    try:
        from pydantic_ai.mcp import MCPServerStreamableHTTP as Toolset
    except ImportError:
        from pydantic_ai.mcp import MCPToolset as Toolset

    told: list[str] = []

    def scripted(messages: Any, info: Any) -> Any:
        parts = [part for message in messages for part in message.parts]
        told[:] = [plain(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
        if len(told) == len(calls):
            return ModelResponse(parts=[TextPart(DONE)])
        return ModelResponse(parts=[ToolCallPart("book", calls[len(told)])])

    agent = Agent(FunctionModel(scripted), toolsets=[Toolset(url)])
    async with agent:
        result = await agent.run("Order Emma.")
    return {"told": told, "end": result.output}


FRAMEWORKS = {"langchain": langchain, "openai-agents": openai_agents, "pydantic-ai": pydantic_ai}

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    run = FRAMEWORKS[sys.argv[1]]

    async def main() -> list[Any]:
        return await asyncio.gather(*(run(url, calls) for url, calls in json.loads(sys.argv[2])))

    sys.stdout.write(json.dumps(asyncio.run(main())))
