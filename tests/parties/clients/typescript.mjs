// The clients of the TypeScript SDKs 1.x and 2.x: each asks every server what it is told to.
//
// Runs in `.parties/node`. Usage: typescript.mjs FOLDER ts1|ts2 URLS CALLS, the last two as JSON; a list in place of an URL
// is a command that speaks stdio. Prints JSON.
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, which, urls, calls] = process.argv.slice(2);
const here = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(here.resolve(name)).href);
const LONG = "trigger-long-running-operation";

async function connected(url) {
  if (which === "ts1") {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
    const client = new Client({ name: "party", version: "1" });
    const transport = Array.isArray(url)
      ? new StdioClientTransport({ command: url[0], args: url.slice(1), stderr: "ignore" })
      : new StreamableHTTPClientTransport(new URL(url));
    await client.connect(transport);
    return [client, transport];
  }
  const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
  const client = new Client({ name: "party", version: "2" }, { versionNegotiation: { mode: "auto" } });
  const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
  const transport = Array.isArray(url)
    ? new StdioClientTransport({ command: url[0], args: url.slice(1), stderr: "ignore" })
    : new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return [client, transport];
}

const shape = (result) => ({
  error: result.isError === true,
  text: (result.content ?? []).flatMap((part) => (part.text === undefined ? [] : [part.text])).join("\n"),
});

async function attempt(client, name, args, onprogress) {
  try {
    const options = { onprogress, timeout: 300000 };
    const asked = { name, arguments: args };
    return shape(await (which === "ts1" ? client.callTool(asked, undefined, options) : client.callTool(asked, options)));
  } catch (error) {
    return { raised: `${error.name}: ${error.message}` };
  }
}

async function listed(client) {
  const names = [];
  let cursor;
  do {
    const page = await client.listTools(cursor === undefined ? undefined : { cursor });
    names.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return names;
}

async function session(url, wanted) {
  const [client, transport] = await connected(url);
  const told = { tools: await listed(client), calls: [], heard: [] };
  for (const [name, args] of wanted) told.calls.push(await attempt(client, name, args));
  if (told.tools.includes("steps")) {
    const key = randomUUID();
    const released = [];
    told.steps = await attempt(client, "steps", { key }, ({ progress }) => {
      told.heard.push(progress);
      released.push(attempt(client, "release", { key }));
    });
    await Promise.all(released);
  } else if (told.tools.includes(LONG)) {
    told.steps = await attempt(client, LONG, { duration: 0.4, steps: 4 }, ({ progress }) => told.heard.push(progress));
  }
  if (transport.sessionId) await transport.terminateSession();
  await client.close();
  return told;
}

const answers = await Promise.all(
  Object.entries(JSON.parse(urls)).map(async ([name, url]) => {
    try {
      return [name, await session(url, JSON.parse(calls)[name])];
    } catch (error) {
      return [name, { broke: `${error.name}: ${error.message}` }];
    }
  }),
);
process.stdout.write(JSON.stringify(Object.fromEntries(answers)), () => process.exit(0));
