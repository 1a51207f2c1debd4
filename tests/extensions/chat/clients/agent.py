"""Runs agents of a framework on a model server: `python agent.py FRAMEWORK`.

Runs with the interpreter of a party, so it imports nothing of this repository. The environment holds the server's
address. Standard input is a JSON list of the models' names. Prints JSON by API and by model, for a run in one piece and
for a streamed one. Each holds the arguments that the agent's tool was called with, and the agent's last words.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

import asyncio
import json
import os
import sys
from importlib import import_module

# Without these, frameworks ask for more than a model on the network, or for words of the user.
os.environ |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LOGFIRE_IGNORE_NO_CONFIG": "1", "LANGSMITH_TRACING": "false"}
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "sk-mine", "ANTHROPIC_API_KEY": "sk-mine"}
QUESTION = "Weather in Oslo?"
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}


def make_tool(calls):
    """A tool that notes what it is called with."""

    def get_weather(city: str, days: int = 1) -> str:
        """The weather in a city."""
        calls.append([city, days])
        return "rain"

    return get_weather


async def run_openai_agents(api, model, streamed):
    """A run of openai-agents, whose models speak Chat Completions and Responses."""
    agents = import_module("agents")
    client = import_module("openai").AsyncOpenAI(max_retries=0)
    kind = agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
    calls = []
    tool = agents.function_tool(make_tool(calls))
    agent = agents.Agent(name="clerk", model=kind(model=model, openai_client=client), tools=[tool])
    if not streamed:
        return [calls, (await agents.Runner.run(agent, QUESTION)).final_output]
    result = agents.Runner.run_streamed(agent, QUESTION)
    async for _ in result.stream_events():
        pass
    return [calls, result.final_output]


async def run_pydantic_ai(api, model, streamed):
    """A run of pydantic-ai, whose models speak all three."""
    kinds = {"chat": "openai-chat", "responses": "openai-responses", "messages": "anthropic"}
    calls = []
    agent = import_module("pydantic_ai").Agent(f"{kinds[api]}:{model}", tools=[make_tool(calls)])
    if not streamed:
        return [calls, (await agent.run(QUESTION)).output]
    async with agent.run_stream(QUESTION) as result:
        return [calls, await result.get_output()]


async def run_langchain(api, model, streamed):
    """A run of LangChain's agent; the models of langchain-openai and langchain-anthropic speak all three."""
    more = {"max_retries": 0}
    if api == "messages":
        made = import_module("langchain_anthropic").ChatAnthropic(model=model, max_tokens=100, **more)
    else:
        made = import_module("langchain_openai").ChatOpenAI(model=model, use_responses_api=api == "responses", **more)
    calls = []
    agent = import_module("langchain.agents").create_agent(made, tools=[make_tool(calls)])
    asked = {"messages": [{"role": "user", "content": QUESTION}]}
    if not streamed:
        return [calls, (await agent.ainvoke(asked))["messages"][-1].text]
    words = ""
    async for part, _ in agent.astream(asked, stream_mode="messages"):
        words += part.text if part.type == "AIMessageChunk" else ""
    return [calls, words]


async def run_litellm(api, model, streamed):
    """A loop of litellm's `completion`, which speaks Chat Completions and Messages."""
    litellm = import_module("litellm")
    litellm.suppress_debug_info = True  # it prints, if a model is not one of its list
    name = f"{'anthropic' if api == 'messages' else 'openai'}/{model}"
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
    messages, calls = [{"role": "user", "content": QUESTION}], []
    tool = make_tool(calls)
    while True:
        answer = await litellm.acompletion(
            model=name, messages=messages, tools=tools, stream=streamed, max_tokens=100, num_retries=0
        )
        if streamed:
            answer = litellm.stream_chunk_builder([chunk async for chunk in answer], messages=messages)
        said = answer.choices[0].message
        if not said.tool_calls:
            return [calls, said.content]
        messages.append(said.model_dump(exclude_none=True))
        for call in said.tool_calls:
            content = tool(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


FRAMEWORKS = {
    "openai-agents": (run_openai_agents, ("chat", "responses")),
    "pydantic-ai": (run_pydantic_ai, ("chat", "responses", "messages")),
    "langchain": (run_langchain, ("chat", "responses", "messages")),
    "litellm": (run_litellm, ("chat", "messages")),
}


async def run_all(framework, models):
    """Every run of a framework, one after the other."""
    run, apis = FRAMEWORKS[framework]
    return {
        api: {model: [await run(api, model, False), await run(api, model, True)] for model in models} for api in apis
    }


if __name__ == "__main__":
    (wanted,) = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(run_all(wanted, json.load(sys.stdin)))))
