// Two MCP servers of the TypeScript world in one process, each on a loopback port of its own.
//
//     ts1   @modelcontextprotocol/sdk 1.x: McpServer with zod, sessions, server-sent events
//     ts2   @modelcontextprotocol/server 2.x: createMcpHandler with zod, both eras
//
// Runs in `.parties/node`. Prints the ports as one line of JSON when both answer; ends when its input does. With `ts1` or
// `ts2` as its second argument, it is that server over stdio.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const here = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(here.resolve(name)).href);
const { McpServer } = await load("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = await load("@modelcontextprotocol/sdk/server/streamableHttp.js");
const modern = await load("@modelcontextprotocol/server");
const { z } = await load("zod");

const STEPS = 4;
const book = {
  title: z.string(),
  copies: z.number().int(),
  price: z.number(),
  gift: z.boolean(),
  size: z.enum(["small", "large"]),
  tags: z.array(z.string()),
  place: z.object({ city: z.string(), floor: z.number().int() }),
  note: z.string().nullable().optional(),
  shelf: z.number().int().default(0),
};

// Key of a caller -> what its `steps` call waits for: how many steps it may take, and who is told of another.
const allowed = new Map();
const gate = (key) => {
  if (!allowed.has(key)) allowed.set(key, { count: 0, waiting: [] });
  return allowed.get(key);
};
const acquire = (key) => {
  const entry = gate(key);
  if (entry.count > 0) {
    entry.count -= 1;
    return Promise.resolve();
  }
  return new Promise((resolve) => entry.waiting.push(resolve));
};
const release = (key) => {
  const entry = gate(key);
  const waiting = entry.waiting.shift();
  if (waiting) waiting();
  else entry.count += 1;
};
const text = (told, isError = false) => ({ content: [{ type: "text", text: told }], isError });

// The same four tools for either library; `shape` makes of a zod shape what it registers.
function equip(server, shape, report) {
  server.registerTool("book", { description: "Orders a book.", inputSchema: shape(book) }, (args) =>
    text(JSON.stringify(args)),
  );
  server.registerTool("fail", { inputSchema: shape({ reason: z.string() }) }, ({ reason }) =>
    text(`the tool says: ${reason}`, true),
  );
  server.registerTool("release", { inputSchema: shape({ key: z.string() }) }, ({ key }) => {
    release(key);
    return text("released");
  });
  server.registerTool("steps", { inputSchema: shape({ key: z.string() }) }, async ({ key }, context) => {
    for (let step = 1; step <= STEPS; step += 1) {
      await report(context, { progress: step, total: STEPS });
      await acquire(key);
    }
    return text(`${STEPS} steps`);
  });
  return server;
}

function oldServer() {
  const report = (extra, progress) =>
    extra.sendNotification({
      method: "notifications/progress",
      params: { ...progress, progressToken: extra._meta.progressToken },
    });
  return equip(new McpServer({ name: "ts1", version: "1" }), (shape) => shape, report);
}

function newServer() {
  const report = (context, progress) =>
    context.mcpReq.notify({
      method: "notifications/progress",
      params: { ...progress, progressToken: context.mcpReq._meta.progressToken },
    });
  return equip(new modern.McpServer({ name: "ts2", version: "2" }), (shape) => z.object(shape), report);
}

const sessions = new Map();
async function answerOld(request, response) {
  const id = request.headers["mcp-session-id"];
  let transport = sessions.get(id);
  if (id && !transport) {
    response.writeHead(404, { "content-type": "application/json" });
    response.end('{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}');
    return;
  }
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (made) => sessions.set(made, transport),
      onsessionclosed: (gone) => sessions.delete(gone),
    });
    await oldServer().connect(transport);
  }
  await transport.handleRequest(request, response);
}

const handler = modern.createMcpHandler(newServer);
async function answerNew(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const answer = await handler.fetch(
    new Request(`http://${request.headers.host}${request.url}`, {
      method: request.method,
      headers: request.headers,
      body: chunks.length > 0 ? Buffer.concat(chunks) : undefined,
      signal: gone.signal,
    }),
  );
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  if (answer.body) for await (const chunk of answer.body) response.write(chunk);
  response.end();
}

const listen = (answer) =>
  new Promise((resolve) => {
    const server = createServer((request, response) => {
      answer(request, response).catch(() => response.destroy());
    });
    server.listen(0, "127.0.0.1", () => resolve(server.address().port));
  });

const overStdio = process.argv[3];
if (overStdio === "ts1") {
  const { StdioServerTransport } = await load("@modelcontextprotocol/sdk/server/stdio.js");
  await oldServer().connect(new StdioServerTransport());
} else if (overStdio === "ts2") {
  const { StdioServerTransport } = await load("@modelcontextprotocol/server/stdio");
  await newServer().connect(new StdioServerTransport());
} else {
  process.stdout.write(`${JSON.stringify({ ts1: await listen(answerOld), ts2: await listen(answerNew) })}\n`);
  process.stdin.on("end", () => process.exit(0)).resume();
}
