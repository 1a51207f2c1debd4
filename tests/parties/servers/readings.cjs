// express with qs, multer and cookie, answering with what they read of a request. The first argument is the folder of
// the packages. Prints its port as JSON, and ends when its standard input does.
const { createRequire } = require("node:module");
const load = createRequire(`${process.argv[2]}/package.json`);
const express = load("express"), multer = load("multer"), qs = load("qs"), cookie = load("cookie");

const pairs = (read) => Object.entries(read || {}).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, String(one)]));
const app = express();
app.set("query parser", (text) => qs.parse(text));
app.use(express.urlencoded({ extended: true }));
app.use(multer().any());
app.all("/{*path}", (request, response) => {
  response.json({
    cookies: pairs(cookie.parse(request.headers.cookie || "")),
    query: pairs(request.query),
    form: pairs(request.body),
    files: (request.files || []).map((file) => file.fieldname),
  });
});
const server = app.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ express: server.address().port })));
process.stdin.on("end", () => process.exit(0)).resume();
