// Parts that several pages share: formatting, links, bars, tables, and reading a path of the operator's port again.
import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { ask, query } from "./api.js";

export const html = htm.bind(h);
export const OUTCOMES = ["delivered", "answered", "repaired", "corrected", "refused", "tool_error", "withheld", "upstream_error", "passthrough", "client_gone"];

// Control, invisible and bidirectional characters are shown as escapes such as \u202e; line feeds stay.
const HIDDEN = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
export const clean = (text) =>
  String(text ?? "").replace(HIDDEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
// Shows what stands between backticks as code.
export const coded = (text) => clean(text).split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));
export const json = (value) => clean(JSON.stringify(value, null, 2));
export const time = (stamp) => (stamp ? new Date(stamp).toLocaleTimeString([], { hour12: false }) : "");
export const ms = (value) => (value == null ? "–" : value >= 100 ? `${Math.round(value)} ms` : `${Number(value.toPrecision(2))} ms`);
export const share = (part, all) => (all ? `${Math.round((100 * part) / all)} %` : "–");
// Counts as whole percentages that add up to 100, each as a text; counts of 0 are left out.
export function shares(counts) {
  const all = sum(counts), found = Object.entries(counts).filter(([, number]) => number).map(([name, number]) => ({ name, exact: (100 * number) / all, share: Math.floor((100 * number) / all) }));
  const left = 100 - found.reduce((total, each) => total + each.share, 0);
  for (const each of [...found].sort((one, other) => other.exact - other.share - (one.exact - one.share)).slice(0, left)) each.share += 1;
  return Object.fromEntries(found.map(({ name, share: part, exact }) => [name, part ? `${part} %` : exact > 0 ? "<1 %" : "0 %"]));
}
export const link = (page, params = {}) => {
  const found = query(params);
  return `#/${page}${found ? `?${found}` : ""}`;
};
export const sum = (counts) => Object.values(counts || {}).reduce((one, other) => one + other, 0);
export const words = (outcome) => outcome.replaceAll("_", " ");
// The metrics count calls of unknown tools under this tool name.
export const UNKNOWN = "_other";
export const toolName = (row) => (row.tool === UNKNOWN ? "(unknown tools)" : row.tool || row.route);
export const mistake = (row) => (row.what ? `${row.code} ${row.what.toLowerCase()}` : row.code);

export function readHash() {
  const [page, params] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: page || "overview", params: Object.fromEntries(new URLSearchParams(params || "")) };
}
export function setParams(params) {
  const { page, params: before } = readHash();
  const next = link(page, { ...before, ...params });
  if (next !== location.hash) location.hash = next;
}

// Reads a path of the operator's port at once and then every `every` ms while the page is visible; once where `every` is 0.
// After a change of path no answer of the earlier path is returned.
export function useAnswer(path, every = 0) {
  const [state, set] = useState({});
  const [again, setAgain] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0, age = 0;
    const look = async () => {
      if (!document.hidden && path) {
        try {
          const value = await ask(path, undefined, stop.signal, age);
          age = every / 1000;
          if (!stop.signal.aborted) set({ value, path });
        } catch (error) {
          if (stop.signal.aborted) return;
          set((before) => ({ value: before.path === path ? before.value : undefined, error, path }));
        }
      }
      if (every && !stop.signal.aborted) timer = setTimeout(look, every);
    };
    look();
    return () => { stop.abort(); clearTimeout(timer); };
  }, [path, every, again]);
  const { value, error } = state.path === path ? state : {};
  return { value, error, again: () => setAgain((number) => number + 1) };
}

export const Asking = () => html`<p class="dim" aria-busy="true">Asking the proxy.</p>`;

export function Failed({ error }) {
  return error ? html`<p class="bad" role="alert">${error.status ? clean(error.message) : "The proxy does not answer; retrying."}</p>` : null;
}

export function Copy({ text, children }) {
  const [done, set] = useState(false);
  const timer = useRef(0);
  const copy = async () => {
    await navigator.clipboard?.writeText(typeof text === "function" ? await text() : text);
    set(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => set(false), 1500);
  };
  return html`<button type="button" onClick=${copy}>${done ? "copied" : children}</button>`;
}

// Stacked bars, one for each interval, oldest first. A screen reader gets one sentence, and a table shows the same numbers.
export function Bars({ bars, slots }) {
  const highest = Math.max(1, ...bars.map((bar) => sum(bar.outcomes)));
  const width = 1000 / Math.max(bars.length, slots), empty = Math.max(0, slots - bars.length);
  const total = bars.reduce((number, bar) => number + sum(bar.outcomes), 0);
  const stack = (bar, index) => {
    let top = 100;
    return OUTCOMES.filter((name) => bar.outcomes[name]).map((name) => {
      const height = (96 * bar.outcomes[name]) / highest;
      top -= height;
      return html`<rect class=${name} x=${(empty + index) * width} y=${top} width=${width * 0.8} height=${height}><title>${time(bar.at)} ${words(name)} ${bar.outcomes[name]}</title></rect>`;
    });
  };
  return html`<svg class="bars" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label=${`${total} requests in ${bars.length} intervals of 15 seconds`}>${bars.map(stack)}</svg>
    <p class="legend dim">${OUTCOMES.filter((name) => bars.some((bar) => bar.outcomes[name])).map((name) => html`<span><i class=${name} aria-hidden="true">■</i> ${words(name)}</span>`)}</p>
    <p class="axis dim"><span>${minutes(slots * 15)} ago</span><span>one bar: 15 s${total ? `, the highest ${highest.toLocaleString()} requests` : ""}</span><span>now</span></p>
    <details><summary>as a table</summary><table><thead><tr><th scope="col">until</th>${OUTCOMES.map((name) => html`<th scope="col" class="num">${words(name)}</th>`)}</tr></thead>
    <tbody>${bars.map((bar) => html`<tr><td>${time(bar.at)}</td>${OUTCOMES.map((name) => html`<td class="num">${bar.outcomes[name] || ""}</td>`)}</tr>`)}</tbody></table></details>`;
}

const minutes = (seconds) => (seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);

// Shows rows as a table, and as cards on a narrow screen. `rows` is undefined until the answer arrives. A column is
// [title, function that returns a cell, whether the cell is a number].
export function Rows({ label, columns, rows, empty }) {
  if (!rows) return html`<${Asking} />`;
  if (!rows.length) return html`<p class="dim">${empty}</p>`;
  return html`<table class="cards" aria-label=${label}><thead><tr>${columns.map(([title, , number]) => html`<th scope="col" class=${number ? "num" : ""}>${title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${columns.map(([title, cell, number]) => html`<td class=${number ? "num" : ""} data-label=${title}><div>${cell(row)}</div></td>`)}</tr>`)}</tbody></table>`;
}

// Returns the JSON text of a schema as YAML for the config. JSON on one line is YAML in flow style.
export const yaml = (text) => `schema: ${text.replace(/"(?:[^"\\]|\\.)*"|\s+/g, (part) => (part[0] === '"' ? part : ""))}\n`;
