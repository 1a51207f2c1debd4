// What a team would write by hand for speed: node's own server, AJV with coercion, undici to the upstream.
//   node undici_ajv.cjs PORT UPSTREAM_PORT SCHEMA_FILE      (NODE_PATH names the folder of the packages)
const http = require("node:http");
const fs = require("node:fs");
const Ajv = require("ajv").default || require("ajv");
const { Pool } = require("undici");

const [port, upstream, schemaFile] = process.argv.slice(2);
const validate = new Ajv({ coerceTypes: true, allErrors: true, strict: false }).compile(
  JSON.parse(fs.readFileSync(schemaFile, "utf8")),
);
const pool = new Pool(`http://127.0.0.1:${upstream}`, { connections: 128 });
const HOP = new Set(["connection", "keep-alive", "transfer-encoding", "content-length", "host"]);

function refuse(response, errors) {
  const text = JSON.stringify({ error: "invalid arguments", errors });
  response.writeHead(422, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  response.end(text);
}

function forward(request, response, body) {
  const headers = {};
  for (const name in request.headers) if (!HOP.has(name)) headers[name] = request.headers[name];
  // The upstream's answer is written as it comes: of undici's ways the leanest but for its raw dispatch.
  pool.stream({ path: request.url, method: "POST", headers, body, opaque: response }, (answer) => {
    const out = {};
    for (const name in answer.headers) {
      if (name !== "connection" && name !== "keep-alive" && name !== "transfer-encoding") out[name] = answer.headers[name];
    }
    answer.opaque.writeHead(answer.statusCode, out);
    return answer.opaque;
  }, (error) => { if (error && !response.headersSent) { response.writeHead(502); response.end(); } });
}

http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    let value;
    try { value = JSON.parse(parts.length === 1 ? parts[0] : Buffer.concat(parts)); }
    catch (error) { return refuse(response, [{ message: error.message }]); }
    if (!validate(value)) return refuse(response, validate.errors);
    // AJV does not say whether it coerced, so the body is written anew.
    forward(request, response, JSON.stringify(value));
  });
}).listen(Number(port), "127.0.0.1");
