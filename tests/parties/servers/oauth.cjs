// Loaded before the example server of the TypeScript SDK with `--oauth`: it listens on loopback, says when both of its
// servers do, and ends with its standard input.
const net = require("node:net");

const listen = net.Server.prototype.listen;
let listening = 0;
net.Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => {
    listening += 1;
    if (listening === 2) process.stdout.write(`${JSON.stringify({ guarded: Number(process.env.MCP_PORT) })}\n`);
  });
  return listen.call(this, { port, host: "localhost" }, ...rest.filter((each) => typeof each === "function"));
};
console.log = () => {};
process.stdin.on("end", () => process.exit(0)).resume();
