// fastify with @fastify/http-proxy, the body judged and coerced by AJV before it goes on.
//   node fastify_ajv.cjs PORT UPSTREAM_PORT SCHEMA_FILE     (NODE_PATH names the folder of the packages)
const fs = require("node:fs");
const Ajv = require("ajv").default || require("ajv");

const [port, upstream, schemaFile] = process.argv.slice(2);
const validate = new Ajv({ coerceTypes: true, allErrors: true, strict: false }).compile(
  JSON.parse(fs.readFileSync(schemaFile, "utf8")),
);
const fastify = require("fastify")();
fastify.register(require("@fastify/http-proxy"), {
  upstream: `http://127.0.0.1:${upstream}`,
  proxyPayloads: false, // the body is parsed here; the proxy writes it anew
  undici: { connections: 128 },
  preHandler: (request, reply, done) => {
    if (request.body === undefined || validate(request.body)) return done();
    reply.code(422).send({ error: "invalid arguments", errors: validate.errors });
  },
});
fastify.listen({ port: Number(port), host: "127.0.0.1" });
