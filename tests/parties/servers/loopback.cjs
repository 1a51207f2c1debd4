// Loaded before a server that would listen on every address of the machine: here it listens on loopback alone, and
// prints its port as one line of JSON.
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => {
    process.stdout.write(`${JSON.stringify({ everything: this.address().port })}\n`);
  });
  return listen.call(this, { port: 0, host: "127.0.0.1" }, ...rest.filter((each) => typeof each === "function"));
};
console.log = () => {};
process.stdin.on("end", () => process.exit(0)).resume();
