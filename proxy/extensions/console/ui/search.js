// The search of the page "Calls": one text such as `tool:weather outcome:refused /lat north`, and the parameters that it stands for.
// A word without a name is looked for in everything that a call shows. A value that is no known name is a part of one (`~weath`).
import { OUTCOMES } from "./parts.js";

// Name in the text -> parameter of the address, and what it finds.
export const NAMES = {
  tool: ["tool", "tool"], outcome: ["outcome", `${OUTCOMES.join(", ")}, or failed`], code: ["code", "error code, such as VAL-010"], path: ["path", "parameter; /lat is short for path:/lat"],
  rule: ["rule", "repair rule"], route: ["route", "route"], model: ["model", "model whose answer made the call"], since: ["since", "1m, 15m, 1h"],
  conversation: ["conversation", "first digits of the conversation's hash"], request: ["request_id", "request ID"], trace: ["trace_id", "trace ID"],
};
const TOKEN = /(?:[^\s"]+|"[^"]*"?)+/g;
const plain = (text) => text.replaceAll('"', "");
const split = (token) => /^([a-z]+):(.*)$/s.exec(token) || [];
const OTHER_WORDS = { failed: "upstream_error" };

// Returns the outcomes that a word names or is a part of.
export const findOutcomes = (word) => word.split(",").filter(Boolean).map((one) => OTHER_WORDS[one] || one)
  .flatMap((one) => (OUTCOMES.includes(one) ? one : OUTCOMES.filter((name) => name.includes(one)).concat(OUTCOMES.some((name) => name.includes(one)) ? [] : one))).join();

// Returns the parameters of a text: each name of `NAMES`, empty if the text lacks it, and `text` for all other words.
export function readSearch(text, known = {}) {
  const found = Object.fromEntries(Object.values(NAMES).map(([name]) => [name, ""])), words = [];
  for (const token of text.match(TOKEN) || []) {
    const [, name, value] = split(token);
    if (token[0] === "/") found.path = read("path", plain(token), known);
    else if (name && Object.hasOwn(NAMES, name)) found[NAMES[name][0]] = read(NAMES[name][0], plain(value), known);
    else words.push(plain(token));
  }
  return { ...found, text: words.join(" ") };
}

const EXACT = new Set(["conversation", "since"]);
function read(name, value, known) {
  if (name === "outcome") return findOutcomes(value);
  return !value || EXACT.has(name) || known[name]?.has(value) ? value : `~${value}`;
}

// Returns the text that stands for parameters.
export function writeSearch(params) {
  const tokens = Object.entries(NAMES).filter(([, [name]]) => params[name]).map(([short, [name]]) => {
    const value = params[name].replace(/^~/, ""), shown = /\s/.test(value) ? `"${value}"` : value;
    return name === "path" && value[0] === "/" ? shown : `${short}:${shown}`;
  });
  return [...tokens, params.text].filter(Boolean).join(" ");
}

// Returns whole texts that complete the last word of a text.
const MOST = 12;
export function suggest(text, known) {
  const last = /\s$/.test(text) ? "" : (text.match(TOKEN) || [""]).at(-1), head = text.slice(0, text.length - last.length);
  const [, name, value] = split(last), param = name && Object.hasOwn(NAMES, name) ? NAMES[name][0] : "";
  const quote = (one) => (/\s/.test(one) ? `"${one}"` : one);
  const values = (of) => [...(of === "outcome" ? OUTCOMES : of === "since" ? ["1m", "5m", "15m", "1h"] : known[of] || [])];
  const part = plain(param ? value : last).toLowerCase(), fits = (one) => one.toLowerCase().includes(part) && one.toLowerCase() !== part;
  if (param) return values(param).filter(fits).slice(0, MOST).map((one) => `${head}${name}:${quote(one)}`);
  if (last[0] === "/") return values("path").filter(fits).slice(0, MOST).map((one) => head + quote(one));
  const names = Object.keys(NAMES).filter((one) => one.startsWith(part)).map((one) => `${head}${one}:`);
  const tools = part ? values("tool").filter(fits).map((one) => `${head}tool:${quote(one)}`) : [];
  return [...names, ...tools].slice(0, MOST);
}
