// The page "Tools": what models get wrong with one tool, and which changes of its schema would help.
import { useEffect, useState } from "./vendor/hooks.js";
import { ask } from "./api.js";
import { Copy, Failed, Rows, clean, html, json, link, mistake, share, sum, time, useAnswer, yaml } from "./parts.js";

export function Tool({ params, values }) {
  return params.tool ? html`<${One} route=${params.route} tool=${params.tool} values=${values} />` : html`<${All} />`;
}

function All() {
  const { value, error } = useAnswer("overview?window=1h", 5000);
  const tools = value?.tools.filter((row) => row.served);
  return html`<h1>Tools</h1><${Failed} error=${error} />
    <${Rows} label="tools" rows=${tools} empty="No tool is served, or none was called yet." columns=${[
      ["tool", (row) => html`<a href=${link("tools", { route: row.route, tool: row.tool })}>${clean(row.tool)}</a>`],
      ["route", (row) => clean(row.route)], ["mode", (row) => row.mode], ["calls in the last hour", (row) => row.calls, true],
      ["refused", (row) => share(row.outcomes.refused || 0, row.calls), true],
    ]} />`;
}

function One({ route, tool, values }) {
  const path = `${encodeURIComponent(route)}/${encodeURIComponent(tool)}`;
  const { value, error } = useAnswer(`tools/${path}`, 2000);
  if (!value) return html`<h1>${clean(tool)}</h1><${Failed} error=${error} />`;
  const calls = { route, tool };
  const rows = [...value.mistakes, ...value.invented.map((key) => ({ ...key, path: key.parent, unknown: key.name, code: "invented key" }))];
  return html`<h1>${clean(tool)}</h1><${Failed} error=${error} />
    <p class="dim">${clean(route)} · ${value.mode} · repair ${value.repair} · schema ${value.schema_id || "none"} · ${sum(value.outcomes)} requests, ${share(value.outcomes.refused || 0, sum(value.outcomes))} refused, ${share(value.outcomes.repaired || 0, sum(value.outcomes))} repaired</p>
    <p>${clean(value.description)}</p>
    <div class="actions"><a href=${link("try", calls)}>try it</a> <a href=${link("calls", calls)}>its calls</a> <${Copy} text=${() => yaml(value.schema)}>copy schema as YAML<//></div>
    <h2>What to change</h2>
    ${value.changes.length === 0 && html`<p class="dim">${value.calls ? `Nothing stands out in ${value.calls} calls.` : "No call has come yet: what models get wrong is counted from the first one on."}</p>`}
    ${value.changes.map((change, index) => html`<div class="card"><p>${index + 1}. ${clean(change.text)}</p>
      ${change.schema !== undefined && html`<div class="actions"><${Tried} key=${JSON.stringify(change.schema)} change=${change} route=${route} tool=${tool} values=${values} />
        <button type="button" onClick=${() => { sessionStorage.setItem("toolcall-proxy schema", JSON.stringify(change.schema, null, 2)); setPage("try", { ...calls, edited: "1" }); }}>try this change</button>
        <${Copy} text=${() => yaml(change.schema)}>copy YAML<//></div>`}</div>`)}
    <div class="two"><div><h2>Mistakes</h2>
      <${Rows} label="mistakes" rows=${rows} empty="No mistake was counted." columns=${[
        ["parameter", (row) => html`<a href=${link("calls", { ...calls, path: row.path, ...(row.unknown ? {} : { [row.repaired ? "rule" : "code"]: row.code }) })}>${clean(row.path || "arguments")}</a>${row.unknown ? html` key <code>${clean(row.unknown)}</code>` : ""}`],
        ["mistake", (row) => html`${clean(row.unknown ? "unknown field" : mistake(row))}${row.keyword ? ` (${clean(row.keyword)})` : ""}${row.shapes ? html`<br /><span class="dim mono">${clean(Object.keys(row.shapes).slice(0, 3).join("  "))}</span>` : ""}`],
        ["calls", (row) => row.calls, true], ["last", (row) => time(row.last), true],
        ["right at the next try", (row) => share(row.right, row.retried), true],
      ]} /></div>
    <div><h2>Schema</h2><${Schema} schema=${value.schema} mistakes=${value.mistakes} calls=${value.calls} /></div></div>`;
}

// What a change does to the kept calls: judged again where their arguments are kept, told by their verdicts elsewhere. A
// change is judged once, not each time the page is read again.
function Tried({ change, route, tool, values }) {
  const [{ asking, counts }, set] = useState({ asking: values !== "off" });
  useEffect(() => {
    let gone = false;
    const tell = (state) => { if (!gone) set(state); };
    if (values !== "off") ask("trial", { route, tool, schema: change.schema, over: "kept" }).then((found) => tell({ counts: found }), () => tell({}));
    return () => { gone = true; };
  }, [values]);
  const judged = counts ? counts.calls - counts.cannot_tell : 0;
  if (asking) return html`<span class="dim">trying it on the kept calls</span>`;
  if (judged) return html`<span>tried on ${judged} kept call${judged === 1 ? "" : "s"}: ${counts.newly_accepted} that were refused would pass${counts.newly_refused ? html`, <b class="bad">${counts.newly_refused} that passed would be refused</b>` : ""}</span>`;
  return html`<span>by their verdicts, ${change.passes ? `at least ${change.passes}` : "none"} of these calls would pass</span>`;
}

function setPage(page, params) { location.hash = link(page, params); }

// Shows the schema. A mark at a property gives the share of calls that are refused or repaired there.
function Schema({ schema, mistakes, calls }) {
  const lines = json(schema).split("\n");
  const names = new Map();
  for (const each of mistakes) {
    const name = each.path.split("/").filter((step) => step !== "*").pop();
    if (name && !names.has(name)) names.set(name, each);
  }
  return html`<div class="mono" role="group" aria-label="schema">${lines.map((line) => {
    const hit = names.get(/^\s*"([^"]+)": \{/.exec(line)?.[1]);
    return html`<div class=${hit ? "schema-line hit" : "schema-line"}>${line}${hit ? html` <span class=${hit.repaired ? "repaired" : "refused"}>${hit.repaired ? "~" : "!"} ${share(hit.calls, calls)} ${hit.repaired ? "repaired" : "refused"}</span>` : ""}</div>`;
  })}</div>`;
}
