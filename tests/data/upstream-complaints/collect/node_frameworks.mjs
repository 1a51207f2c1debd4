// Calls Node frameworks with the wrong arguments of `cases.json` and prints their answers, one JSON object a line.
//
// Needs express express-validator express-openapi-validator ajv ajv-formats zod fastify hono @hono/node-server
// @hono/zod-validator joi yup valibot @modelcontextprotocol/sdk class-validator class-transformer reflect-metadata
// in a throw-away folder. Usage: copy this file, cases.json and schema.json there, node node_frameworks.mjs
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'

const require = createRequire(import.meta.url)
const cases = JSON.parse(readFileSync(new URL('cases.json', import.meta.url)))
const schema = JSON.parse(readFileSync(new URL('schema.json', import.meta.url)))
const strict = { ...schema, additionalProperties: false }
const version = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version

function row(dialect, name, status, contentType, body, ...packages) {
  if (status < 400) return
  const versions = Object.fromEntries(packages.map((one) => [one, version(one)]))
  process.stdout.write(
    JSON.stringify({ dialect, case: name, status, content_type: contentType, body, how: 'ran', versions }) + '\n',
  )
}

async function ask(url, dialect, name, sent, ...packages) {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json' },
    body: JSON.stringify(sent),
  })
  const text = await answer.text()
  row(dialect, name, answer.status, answer.headers.get('content-type') ?? '', text, ...packages)
}

// --- schemas ---------------------------------------------------------------------------------------------------------
const { z } = await import('zod')
const zod = z.strictObject({
  lat: z.number(),
  lon: z.number(),
  days: z.number().int().min(1).max(14).optional(),
  units: z.enum(['metric', 'imperial']).optional(),
  city: z.string().min(2).optional(),
  email: z.email().optional(),
  alerts: z.boolean().optional(),
  tags: z.array(z.string()).optional(),
  place: z.object({ lat: z.number(), name: z.string().optional() }).optional(),
  stops: z.array(z.object({ lat: z.number().optional() })).optional(),
})
const z3 = (await import('zod/v3')).z
const zod3 = z3
  .object({
    lat: z3.number(),
    lon: z3.number(),
    days: z3.number().int().min(1).max(14).optional(),
    units: z3.enum(['metric', 'imperial']).optional(),
    city: z3.string().min(2).optional(),
    email: z3.string().email().optional(),
    alerts: z3.boolean().optional(),
    tags: z3.array(z3.string()).optional(),
    place: z3.object({ lat: z3.number(), name: z3.string().optional() }).optional(),
    stops: z3.array(z3.object({ lat: z3.number().optional() })).optional(),
  })
  .strict()

// --- express ---------------------------------------------------------------------------------------------------------
const express = require('express')
const Ajv = require('ajv/dist/2020').default
const ajv = new Ajv({ allErrors: true })
require('ajv-formats').default(ajv)
const check = ajv.compile(strict)
const joi = require('joi')
const joiSchema = joi.object({
  lat: joi.number().required(),
  lon: joi.number().required(),
  days: joi.number().integer().min(1).max(14),
  units: joi.string().valid('metric', 'imperial'),
  city: joi.string().min(2),
  email: joi.string().email(),
  alerts: joi.boolean(),
  tags: joi.array().items(joi.string()),
  place: joi.object({ lat: joi.number().required(), name: joi.string() }),
  stops: joi.array().items(joi.object({ lat: joi.number() })),
})
const yup = require('yup')
const yupSchema = yup
  .object({
    lat: yup.number().required(),
    lon: yup.number().required(),
    days: yup.number().integer().min(1).max(14),
    units: yup.string().oneOf(['metric', 'imperial']),
    city: yup.string().min(2),
    email: yup.string().email(),
    alerts: yup.boolean(),
    tags: yup.array().of(yup.string()),
    place: yup.object({ lat: yup.number().required(), name: yup.string() }).default(undefined),
    stops: yup.array().of(yup.object({ lat: yup.number() })),
  })
  .noUnknown()
const v = await import('valibot')
const valibotSchema = v.strictObject({
  lat: v.number(),
  lon: v.number(),
  days: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(14))),
  units: v.optional(v.picklist(['metric', 'imperial'])),
  city: v.optional(v.pipe(v.string(), v.minLength(2))),
  email: v.optional(v.pipe(v.string(), v.email())),
  alerts: v.optional(v.boolean()),
  tags: v.optional(v.array(v.string())),
  place: v.optional(v.object({ lat: v.number(), name: v.optional(v.string()) })),
  stops: v.optional(v.array(v.object({ lat: v.optional(v.number()) }))),
})
const { body, validationResult } = require('express-validator')
const rules = [
  body('lat').isFloat(),
  body('lon').isFloat(),
  body('days').optional().isInt({ min: 1, max: 14 }),
  body('units').optional().isIn(['metric', 'imperial']),
  body('city').optional().isLength({ min: 2 }),
  body('email').optional().isEmail(),
  body('alerts').optional().isBoolean(),
  body('tags').optional().isArray(),
  body('tags.*').isString(),
  body('place').optional().isObject(),
  body('place.lat').optional().isFloat(),
  body('stops.*.lat').optional().isFloat(),
]

const app = express()
app.use(express.json())
app.post('/ajv-errors', (q, r) => (check(q.body) ? r.json({}) : r.status(400).json({ errors: check.errors })))
app.post('/ajv-array', (q, r) => (check(q.body) ? r.json({}) : r.status(400).json(check.errors)))
app.post('/ajv-text', (q, r) => (check(q.body) ? r.json({}) : r.status(400).json({ error: ajv.errorsText(check.errors) })))
app.post('/zod-issues', (q, r) => send(zod.safeParse(q.body), r, (e) => ({ error: 'Invalid arguments', issues: e.issues })))
app.post('/zod-error', (q, r) => send(zod.safeParse(q.body), r, (e) => ({ success: false, error: e })))
app.post('/zod-flat', (q, r) => send(zod.safeParse(q.body), r, (e) => ({ error: z.flattenError(e) })))
app.post('/zod-tree', (q, r) => send(zod.safeParse(q.body), r, (e) => ({ error: z.treeifyError(e) })))
app.post('/zod-format', (q, r) => send(zod.safeParse(q.body), r, (e) => z.formatError(e)))
app.post('/zod-text', (q, r) => send(zod.safeParse(q.body), r, (e) => ({ error: z.prettifyError(e) })))
app.post('/zod3-issues', (q, r) => send(zod3.safeParse(q.body), r, (e) => ({ issues: e.issues, name: e.name })))
app.post('/zod3-flat', (q, r) => send(zod3.safeParse(q.body), r, (e) => ({ errors: e.flatten() })))
app.post('/zod3-message', (q, r) => send(zod3.safeParse(q.body), r, (e) => ({ message: e.message })))
app.post('/joi', (q, r) => {
  const { error } = joiSchema.validate(q.body, { abortEarly: false })
  return error ? r.status(400).json({ error: 'Bad Request', details: error.details }) : r.json({})
})
app.post('/joi-message', (q, r) => {
  const { error } = joiSchema.validate(q.body)
  return error ? r.status(400).json({ message: error.message }) : r.json({})
})
app.post('/yup', (q, r) =>
  yupSchema.validate(q.body, { abortEarly: false }).then(
    () => r.json({}),
    (e) => r.status(400).json({ errors: e.errors }),
  ),
)
app.post('/valibot', (q, r) => {
  const result = v.safeParse(valibotSchema, q.body)
  return result.success ? r.json({}) : r.status(400).json({ issues: v.flatten(result.issues) })
})
app.post('/express-validator', rules, (q, r) => {
  const found = validationResult(q)
  return found.isEmpty() ? r.json({}) : r.status(400).json({ errors: found.array() })
})
app.post('/express-validator-map', rules, (q, r) => {
  const found = validationResult(q)
  return found.isEmpty() ? r.json({}) : r.status(422).json({ errors: found.mapped() })
})
function send(result, reply, shape) {
  return result.success ? reply.json({}) : reply.status(400).json(shape(result.error))
}

const openapi = express()
openapi.use(express.json())
openapi.use(
  require('express-openapi-validator').middleware({
    apiSpec: {
      openapi: '3.0.3',
      info: { title: 'weather', version: '1' },
      paths: {
        '/weather': {
          post: {
            requestBody: { required: true, content: { 'application/json': { schema: { ...strict, properties: { ...strict.properties, units: { type: 'string', enum: ['metric', 'imperial'] } } } } } },
            responses: { 200: { description: 'ok' } },
          },
        },
      },
    },
    validateRequests: true,
  }),
)
openapi.post('/weather', (_q, r) => r.json({}))
openapi.use((error, _q, r, _n) => r.status(error.status ?? 500).json({ message: error.message, errors: error.errors }))

const listen = (server) => new Promise((ready) => { const one = server.listen(0, '127.0.0.1', () => ready(one)) })
const one = await listen(app)
const two = await listen(openapi)
const at = (server, path) => `http://127.0.0.1:${server.address().port}${path}`

// --- fastify, hono -----------------------------------------------------------------------------------------------------
const fastify = require('fastify')({ ajv: { customOptions: { coerceTypes: false, removeAdditional: false, allErrors: true } } })
fastify.post('/weather', { schema: { body: strict } }, async () => ({}))
const fastifyDefault = require('fastify')()
fastifyDefault.post('/weather', { schema: { body: strict } }, async () => ({}))
await fastify.listen({ port: 0, host: '127.0.0.1' })
await fastifyDefault.listen({ port: 0, host: '127.0.0.1' })

const { Hono } = await import('hono')
const { zValidator } = await import('@hono/zod-validator')
const hono = new Hono()
hono.post('/weather', zValidator('json', zod), (c) => c.json({}))

// --- MCP ------------------------------------------------------------------------------------------------------------------
const { McpServer } = await import('@modelcontextprotocol/sdk/server/mcp.js')
const { Client } = await import('@modelcontextprotocol/sdk/client/index.js')
const { InMemoryTransport } = await import('@modelcontextprotocol/sdk/inMemory.js')
const mcp = new McpServer({ name: 'weather', version: '1' })
mcp.registerTool('get_weather', { inputSchema: zod.shape }, async () => ({ content: [] }))
const client = new Client({ name: 'c', version: '1' })
const [left, right] = InMemoryTransport.createLinkedPair()
await Promise.all([mcp.connect(left), client.connect(right)])

// --- class-validator, as NestJS's ValidationPipe words it ----------------------------------------------------------------
require('reflect-metadata')
const cv = require('class-validator')
const { plainToInstance, Type } = require('class-transformer')
class Place {}
class Stop {}
class WeatherRequest {}
const put = (target, name, ...decorators) => decorators.forEach((one) => one(target.prototype, name))
put(Place, 'lat', cv.IsNumber())
put(Place, 'name', cv.IsOptional(), cv.IsString())
put(Stop, 'lat', cv.IsOptional(), cv.IsNumber())
put(WeatherRequest, 'lat', cv.IsNumber())
put(WeatherRequest, 'lon', cv.IsNumber())
put(WeatherRequest, 'days', cv.IsOptional(), cv.IsInt(), cv.Min(1), cv.Max(14))
put(WeatherRequest, 'units', cv.IsOptional(), cv.IsIn(['metric', 'imperial']))
put(WeatherRequest, 'city', cv.IsOptional(), cv.MinLength(2))
put(WeatherRequest, 'email', cv.IsOptional(), cv.IsEmail())
put(WeatherRequest, 'alerts', cv.IsOptional(), cv.IsBoolean())
put(WeatherRequest, 'tags', cv.IsOptional(), cv.IsArray(), cv.IsString({ each: true }))
put(WeatherRequest, 'place', cv.IsOptional(), cv.ValidateNested(), Type(() => Place))
put(WeatherRequest, 'stops', cv.IsOptional(), cv.ValidateNested({ each: true }), Type(() => Stop))
function flattened(errors, parent = '') {
  // NestJS ValidationPipe.flattenValidationErrors: the parent's path is put before each constraint's text.
  return errors.flatMap((e) => {
    const path = parent ? `${parent}.${e.property}` : e.property
    const own = Object.values(e.constraints ?? {}).map((text) => (parent ? `${parent}.${text}` : text))
    return [...own, ...flattened(e.children ?? [], path)]
  })
}

for (const [name, sent] of Object.entries(cases)) {
  for (const path of ['/ajv-errors', '/ajv-array', '/ajv-text']) {
    await ask(at(one, path), path === '/ajv-text' ? 'ajv-text' : 'ajv', name + path, sent, 'express', 'ajv')
  }
  for (const path of ['/zod-issues', '/zod-error', '/zod-flat', '/zod-tree', '/zod-format', '/zod-text']) {
    await ask(at(one, path), path === '/zod-text' ? 'zod-text' : 'zod', name + path, sent, 'express', 'zod')
  }
  for (const path of ['/zod3-issues', '/zod3-flat', '/zod3-message']) await ask(at(one, path), 'zod', name + path, sent, 'express', 'zod')
  for (const path of ['/joi', '/joi-message']) await ask(at(one, path), path === '/joi' ? 'joi' : 'joi-text', name + path, sent, 'express', 'joi')
  await ask(at(one, '/yup'), 'yup', name, sent, 'express', 'yup')
  await ask(at(one, '/valibot'), 'valibot', name, sent, 'express', 'valibot')
  for (const path of ['/express-validator', '/express-validator-map']) {
    await ask(at(one, path), 'express-validator', name + path, sent, 'express', 'express-validator')
  }
  await ask(at(two, '/weather'), 'express-openapi-validator', name, sent, 'express', 'express-openapi-validator')
  await ask(at(fastify.server, '/weather'), 'ajv-text', name + '/fastify', sent, 'fastify')
  await ask(at(fastifyDefault.server, '/weather'), 'ajv-text', name + '/fastify-default', sent, 'fastify')
  const answer = await hono.request('/weather', {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(sent),
  })
  row('zod', name + '/hono', answer.status, answer.headers.get('content-type'), await answer.text(), 'hono', '@hono/zod-validator', 'zod')
  if (Array.isArray(sent)) continue
  try {
    const result = await client.callTool({ name: 'get_weather', arguments: sent })
    const message = JSON.stringify({ jsonrpc: '2.0', id: 1, result })
    row('mcp-text', name + '/sdk', result.isError ? 400 : 200, 'application/json', message, '@modelcontextprotocol/sdk', 'zod')
  } catch (e) {
    const message = JSON.stringify({ jsonrpc: '2.0', id: 1, error: { code: e.code, message: e.message } })
    row('json-rpc', name + '/sdk', 400, 'application/json', message, '@modelcontextprotocol/sdk', 'zod')
  }
  const found = await cv.validate(plainToInstance(WeatherRequest, sent), { whitelist: true, forbidNonWhitelisted: true })
  if (found.length) {
    const answered = JSON.stringify({ statusCode: 400, message: flattened(found), error: 'Bad Request' })
    row('class-validator', name, 400, 'application/json; charset=utf-8', answered, 'class-validator', 'class-transformer')
  }
}
process.exit(0)
