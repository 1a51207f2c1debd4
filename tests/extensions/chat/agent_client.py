"""Runs an agent of a framework on a model server: `python agent_client.py FRAMEWORK API URL`.

Runs with the interpreter of a party, so it imports nothing of this repository. Prints as JSON, for a run in one piece
and for one that is streamed, what the agent's tool was called with and what the agent said at its end.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

import asyncio
import json
import os
import sys
from importlib import import_module

os.environ |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LOGFIRE_IGNORE_NO_CONFIG": "1"}


def make_tool(calls):
    """A tool that notes what it is called with."""

    def get_weather(city: str, days: int = 1) -> str:
        """The weather in a city."""
        calls.append([city, days])
        return "rain"

    return get_weather


async def run_openai_agents(api, url):
    """Runs of openai-agents, whose models speak Chat Completions and Responses."""
    agents = import_module("agents")
    client = import_module("openai").AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-mine", max_retries=0)
    kind = agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
    ends = []
    for streamed in (False, True):
        calls = []
        tool = agents.function_tool(make_tool(calls))
        agent = agents.Agent(name="clerk", model=kind(model="tiny", openai_client=client), tools=[tool])
        if streamed:
            result = agents.Runner.run_streamed(agent, "Weather in Oslo?")
            async for _ in result.stream_events():
                pass
        else:
            result = await agents.Runner.run(agent, "Weather in Oslo?")
        ends.append([calls, result.final_output])
    return ends


async def run_pydantic_ai(api, url):
    """Runs of pydantic-ai, whose models speak all three."""
    if api == "messages":
        made = import_module("pydantic_ai.providers.anthropic").AnthropicProvider(api_key="sk-mine", base_url=url)
        model = import_module("pydantic_ai.models.anthropic").AnthropicModel("tiny", provider=made)
    else:
        made = import_module("pydantic_ai.providers.openai").OpenAIProvider(base_url=f"{url}/v1", api_key="sk-mine")
        models = import_module("pydantic_ai.models.openai")
        model = (models.OpenAIChatModel if api == "chat" else models.OpenAIResponsesModel)("tiny", provider=made)
    ends = []
    for streamed in (False, True):
        calls = []
        agent = import_module("pydantic_ai").Agent(model, tools=[make_tool(calls)])
        if streamed:
            async with agent.run_stream("Weather in Oslo?") as result:
                ends.append([calls, await result.get_output()])
        else:
            ends.append([calls, (await agent.run("Weather in Oslo?")).output])
    return ends


if __name__ == "__main__":
    framework, spoken, address = sys.argv[1:]
    run = {"agents": run_openai_agents, "pydantic_ai": run_pydantic_ai}[framework]
    sys.stdout.write(json.dumps(asyncio.run(run(spoken, address))))
