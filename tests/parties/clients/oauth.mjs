// The OAuth client of the TypeScript SDK 1.x: asks a guarded server for its tools, with a user who agrees to everything.
//
// Usage: oauth.mjs NODE URL, the second as JSON. Prints the names of the tools as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(`${process.argv[2]}/package.json`));
const load = (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/client/${name}.js`)));
const { Client } = await load("index");
const { StreamableHTTPClientTransport } = await load("streamableHttp");
const { UnauthorizedError } = await load("auth");

const kept = {};
let code;
const authProvider = {
  redirectUrl: "http://localhost:1/callback",
  clientMetadata: { client_name: "parties", redirect_uris: ["http://localhost:1/callback"], scope: "mcp:tools" },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  redirectToAuthorization: async (to) => {
    const answer = await fetch(to, { redirect: "manual" });
    code = new URL(answer.headers.get("location")).searchParams.get("code");
  },
};
const url = new URL(JSON.parse(process.argv[3]));
const transport = new StreamableHTTPClientTransport(url, { authProvider });
try {
  await new Client({ name: "parties", version: "1" }).connect(transport);
  throw new Error("the server asked for no token");
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
}
await transport.finishAuth(code);
const client = new Client({ name: "parties", version: "1" });
await client.connect(new StreamableHTTPClientTransport(url, { authProvider }));
console.log(JSON.stringify((await client.listTools()).tools.map((tool) => tool.name)));
process.exit(0);
