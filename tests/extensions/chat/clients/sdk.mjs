// Asks a model server by the TypeScript SDKs of OpenAI and Anthropic, streamed and not: `node sdk.mjs FOLDER PACKAGE`.
//
// FOLDER is where the packages are installed. The rest is as in sdk.py beside it.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, name] = process.argv.slice(2);
const here = createRequire(`${folder}/package.json`);
const load = (each) => import(pathToFileURL(here.resolve(each)).href);
const USER = [{ role: "user", content: "Weather in Oslo?" }];

const listed = (tools, make) => Object.entries(tools).map(([tool, schema]) => make(tool, schema));
const functions = (tools) =>
  listed(tools, (tool, schema) => ({ type: "function", function: { name: tool, parameters: schema } }));
const flat = (tools) =>
  listed(tools, (tool, schema) => ({ type: "function", name: tool, parameters: schema, strict: false }));

const readChat = (answer) =>
  (answer.choices[0].message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]);
const readItems = (output) =>
  output.filter((item) => item.type === "function_call").map((item) => [item.name, item.arguments]);
const readBlocks = (message) =>
  message.content.filter((block) => block.type === "tool_use").map((block) => [block.name, block.input]);

async function openaiWays() {
  const { default: OpenAI } = await load("openai");
  const client = new OpenAI({ apiKey: "sk-mine", maxRetries: 0 });
  const chat = (model, tools) => ({ model, messages: USER, tools: functions(tools) });
  const responses = (model, tools) => ({ model, input: USER, tools: flat(tools) });
  return [OpenAI.APIError, {
    chat: async (...asked) => readChat(await client.chat.completions.create(chat(...asked))),
    "chat, streamed": async (...asked) =>
      readChat(await client.chat.completions.stream(chat(...asked)).finalChatCompletion()),
    responses: async (...asked) => readItems((await client.responses.create(responses(...asked))).output),
    "responses, streamed": async (...asked) =>
      readItems((await client.responses.stream(responses(...asked)).finalResponse()).output),
  }];
}

async function anthropicWays() {
  const { default: Anthropic } = await load("@anthropic-ai/sdk");
  const client = new Anthropic({ apiKey: "sk-mine", maxRetries: 0 });
  const asked = (model, tools) => ({
    model,
    max_tokens: 100,
    messages: USER,
    tools: listed(tools, (tool, schema) => ({ name: tool, input_schema: schema })),
  });
  return [Anthropic.APIError, {
    messages: async (...turn) => readBlocks(await client.messages.create(asked(...turn))),
    "messages, streamed": async (...turn) => readBlocks(await client.messages.stream(asked(...turn)).finalMessage()),
  }];
}

let text = "";
for await (const part of process.stdin.setEncoding("utf8")) text += part;
const turns = JSON.parse(text);
const [APIError, ways] = await { openai: openaiWays, anthropic: anthropicWays }[name]();
const found = {};
for (const [kind, way] of Object.entries(ways)) {
  found[kind] = {};
  for (const { model, tools } of turns) {
    try {
      found[kind][model] = await way(model, tools);
    } catch (error) {
      if (!(error instanceof APIError)) throw error;
      found[kind][model] = { error: error.constructor.name, status: error.status ?? null };
    }
  }
}
process.stdout.write(JSON.stringify(found));
