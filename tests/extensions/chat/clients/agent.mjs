// Runs agents of Vercel's AI SDK on a model server: `node agent.mjs FOLDER`.
//
// FOLDER is where the packages are installed. The rest is as in agent.py beside it; `compatible` is Chat Completions by
// the package for servers other than OpenAI's.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder] = process.argv.slice(2);
const here = createRequire(`${folder}/package.json`);
const load = (each) => import(pathToFileURL(here.resolve(each)).href);

const { generateText, streamText, stepCountIs, tool } = await load("ai");
const { z } = await load("zod");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");

const baseURL = process.env.OPENAI_BASE_URL;
const apiKey = "sk-mine";
const openai = createOpenAI({ apiKey });
const compatible = createOpenAICompatible({ name: "local", baseURL, apiKey });
const anthropic = createAnthropic({ baseURL, apiKey });
const apis = {
  chat: (model) => openai.chat(model),
  compatible: (model) => compatible.chatModel(model),
  responses: (model) => openai.responses(model),
  messages: (model) => anthropic(model),
};

async function run(model, streamed) {
  const calls = [];
  const getWeather = tool({
    description: "The weather in a city.",
    inputSchema: z.strictObject({ city: z.string(), days: z.number().int().optional() }),
    execute: async ({ city, days }) => {
      calls.push([city, days]);
      return "rain";
    },
  });
  const tools = { get_weather: getWeather };
  const asked = { model, tools, prompt: "Weather in Oslo?", stopWhen: stepCountIs(4), maxRetries: 0, maxOutputTokens: 100 };
  if (!streamed) return [calls, (await generateText(asked)).text];
  let words = "";
  for await (const part of streamText(asked).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") words += part.text;
  }
  return [calls, words];
}

let text = "";
for await (const part of process.stdin.setEncoding("utf8")) text += part;
const found = {};
for (const [api, make] of Object.entries(apis)) {
  found[api] = {};
  for (const name of JSON.parse(text)) {
    found[api][name] = [await run(make(name), false), await run(make(name), true)];
  }
}
process.stdout.write(JSON.stringify(found));
