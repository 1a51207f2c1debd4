// Sends requests to the operator's port. The token stays in this tab (sessionStorage) and is sent as `Authorization`; there
// are no cookies.
const KEY = "toolcall-proxy token";

export class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

// A number that JavaScript would write otherwise (`1.0`, a large integer) keeps its text, so that what is shown is what came.
class ExactNumber extends Number {
  constructor(value, source) { super(value); this.source = source; }
  toJSON() { return JSON.rawJSON(this.source); }
}
export const parse = (text) => JSON.parse(text, (_, value, context) =>
  typeof value === "number" && JSON.rawJSON && context?.source !== String(value) ? new ExactNumber(value, context.source) : value);

export function takeToken() {
  const found = /^#k=(.+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname + "#/overview");
  }
  return found !== null;
}

export const setToken = (token) => sessionStorage.setItem(KEY, token);
export const dropToken = () => sessionStorage.removeItem(KEY);
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

// With `age` an answer is taken that was made for another page up to `age` seconds ago.
export async function ask(path, body, signal, age = 0) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (age) headers["Cache-Control"] = `max-age=${age}`;
  const init = { headers, signal, cache: "no-store" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(init, { method: "POST", body: JSON.stringify(body) });
  }
  const answer = await fetch(`/-/${path}`, init);
  const text = await answer.text();
  let value = {};
  try { value = parse(text); } catch { /* an answer of somebody else on this port */ }
  if (!answer.ok) {
    const error = new Refused(answer.status, value.error || `status ${answer.status}`);
    error.value = value;
    throw error;
  }
  return value;
}

export function query(params) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) for (const one of [value].flat()) if (one) found.append(name, one);
  return found.toString();
}
