// The page "Try it": validates arguments, and compares an edited schema over earlier calls. Nothing is sent to a tool.
import { useEffect, useState } from "./vendor/hooks.js";
import { ask } from "./api.js";
import { Copy, Failed, Rows, clean, html, json, link, setParams, useAnswer, yaml } from "./parts.js";

export function Try({ params }) {
  const { value: served, error } = useAnswer("routes");
  const routes = (served?.routes || []).filter((route) => route.kind !== "passthrough");
  const route = routes.find((one) => one.name === params.route) || routes[0];
  const tool = params.tool && route && (params.tool in route.tools || route.protocol === "mcp") ? params.tool : Object.keys(route?.tools || {})[0];
  return html`<h1>Try it</h1><${Failed} error=${error} />
    <div class="filters"><label>route<select value=${route?.name || ""} onChange=${(event) => setParams({ route: event.target.value, tool: "", call: "", edited: "" })}>${routes.map((one) => html`<option value=${one.name}>${clean(one.name)}</option>`)}</select></label>
      <label>tool<select value=${tool || ""} onChange=${(event) => setParams({ tool: event.target.value, edited: "" })}>${Object.keys(route?.tools || {}).concat(tool && route && !(tool in route.tools) ? [tool] : []).map((one) => html`<option value=${one}>${clean(one)}</option>`)}</select></label></div>
    ${route && tool && html`<${Judge} key=${route.name + tool} route=${route.name} tool=${tool} call=${params.call} edited=${params.edited} />`}`;
}

function Judge({ route, tool, call, edited }) {
  const { value: page } = useAnswer(`tools/${encodeURIComponent(route)}/${encodeURIComponent(tool)}`);
  const { value: kept } = useAnswer(call ? `calls/${encodeURIComponent(call)}` : "");
  const [text, setText] = useState("{}"), [schema, setSchema] = useState(""), [verdict, setVerdict] = useState({});
  const [compared, setCompared] = useState({}), [busy, setBusy] = useState(false);
  useEffect(() => { if (kept?.came !== undefined) setText(JSON.stringify(kept.came, null, 2)); }, [kept]);
  useEffect(() => {
    if (page) setSchema((edited && sessionStorage.getItem("toolcall-proxy schema")) || JSON.stringify(page.schema, null, 2));
  }, [page, edited]);
  const run = async (body, set) => {
    setBusy(true);
    try { set({ value: await ask("trial", { route, tool, ...body }) }); } catch (error) { set({ error }); } finally { setBusy(false); }
  };
  const change = page && schema && schema !== JSON.stringify(page.schema, null, 2) ? { schema } : {};
  return html`<div class="two"><div><label>arguments<textarea spellcheck="false" rows="10" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
      <div class="actions"><button type="button" disabled=${busy} onClick=${() => run({ text, ...change }, setVerdict)}>validate</button><span class="dim">never sent to the tool</span></div>
      <${Failed} error=${verdict.error} />${verdict.value && html`<${Verdict} verdict=${verdict.value} />`}</div>
    <div><label>schema ${change.schema ? "(edited)" : "(as served)"}<textarea spellcheck="false" rows="18" value=${schema} onInput=${(event) => setSchema(event.target.value)}></textarea></label>
      <div class="actions"><button type="button" disabled=${busy} onClick=${() => run({ schema, over: "kept" }, setCompared)}>compare over kept calls</button>
        <button type="button" disabled=${busy} onClick=${() => run({ schema, over: "recorded" }, setCompared)}>compare over recorded calls</button>
        <button type="button" disabled=${!change.schema} onClick=${() => setSchema(JSON.stringify(page.schema, null, 2))}>undo</button>
        <${Copy} text=${() => { try { JSON.parse(schema); return yaml(schema); } catch { return schema; } }}>copy YAML<//></div>
      <p class="dim">Shows for which of the last calls this schema changes the result.</p>
      <${Failed} error=${compared.error} />${compared.value && html`<${Compared} value=${compared.value} route=${route} tool=${tool} />`}</div></div>`;
}

function Verdict({ verdict }) {
  return html`<div class="card" role="status"><p><b class=${verdict.decision === "forward" ? "good" : "warn"}>${verdict.decision === "forward" ? "forward" : "refuse"}</b> ${verdict.code || ""}</p>
    ${verdict.repairs?.map((each) => html`<p class="repaired">${clean(each.path || "arguments")} ${each.rule}</p>`)}
    ${verdict.errors?.map((each) => html`<p class="refused">${clean(each.path || "arguments")} ${each.code} ${clean(each.message)}</p>`)}
    ${verdict.arguments !== undefined && html`<pre tabindex="0">${json(verdict.arguments)}</pre>`}
    ${verdict.content && html`<h2>What the model would read</h2><pre tabindex="0">${clean(verdict.content)}</pre>`}</div>`;
}

// The names of repair rules are written small, codes of errors in capitals. A call that was forwarded is kept without errors.
const isRule = (code) => /^[a-z]/.test(code);
function Compared({ value, route, tool }) {
  return html`<div class="card" role="status"><p><b>${value.calls}</b> calls: same ${value.same}, newly accepted <b class="good">${value.newly_accepted}</b>, newly refused <b class=${value.newly_refused ? "bad" : ""}>${value.newly_refused}</b>, other arguments ${value.other_arguments}, other answer ${value.other_answer}, cannot tell ${value.cannot_tell}</p>
    <${Rows} label="what changes" rows=${value.changes} empty="No call changes." columns=${[
      ["parameter", (row) => html`<code>${clean(row.path || "arguments")}</code>`], ["code", (row) => row.code], ["calls", (row) => row.calls, true],
      ["result", (row) => `${row.before} → ${row.after}`],
      ["calls of it", (row) => isRule(row.code) || row.before === "refuse" ? html`<a href=${link("calls", { route, tool, path: row.path, [isRule(row.code) ? "rule" : "code"]: row.code })}>see them</a>` : ""],
    ]} /></div>`;
}
