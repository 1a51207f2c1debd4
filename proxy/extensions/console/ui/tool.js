// The page "Tools": what models get wrong with one tool, and which changes of its schema would help.
import { useEffect, useState } from "./vendor/hooks.js";
import { ask } from "./api.js";
import { Copy, Failed, Rows, clean, coded, html, json, link, mistake, share, sum, time, useAnswer, yaml } from "./parts.js";

export function Tool({ params, values }) {
  return params.tool ? html`<${One} key=${`${params.route} ${params.tool}`} route=${params.route} tool=${params.tool} values=${values} />` : html`<${All} />`;
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
  const [changes, waiting] = useTrials(value?.changes || [], route, tool, values);
  if (!value) return html`<h1>${clean(tool)}</h1><${Failed} error=${error} />`;
  const calls = { route, tool };
  const rows = [...value.mistakes, ...value.invented.map((key) => ({ ...key, path: key.parent, unknown: key.name, code: "invented key" }))];
  return html`<h1>${clean(tool)}</h1><${Failed} error=${error} />
    <p class="dim">${clean(route)} · ${value.mode} · repair ${value.repair} · schema ${value.schema_id || "none"} · ${sum(value.outcomes)} requests, ${share(value.outcomes.refused || 0, sum(value.outcomes))} refused, ${share(value.outcomes.repaired || 0, sum(value.outcomes))} repaired</p>
    <p>${clean(value.description)}</p>
    <div class="actions"><a href=${link("try", calls)}>try it</a> <a href=${link("calls", calls)}>its calls</a> <${Copy} text=${() => yaml(value.schema_text)}>copy schema as YAML<//></div>
    ${value.changes[0]?.summary && html`<p><b>${coded(value.changes[0].summary)}</b></p>`}
    <h2>What to change</h2>
    ${value.changes.length === 0 && html`<p class="dim">${value.calls ? `${value.calls} calls show nothing to change.` : "No call yet. Errors are counted from the first call on."}</p>`}
    ${changes.map((change, index) => html`<div class="card" key=${change.rule + change.path}><p>${index + 1}. ${coded(change.text)}</p>
      ${change.config && html`<pre tabindex="0" aria-label="line for the config">${clean(change.config)}</pre><div class="actions"><${Copy} text=${`${change.config}\n`}>copy line<//>
        ${change.passes > 0 && html`<span>would fix at least ${change.passes} of these calls</span>`}</div>`}
      ${change.schema !== undefined && html`<div class="actions">${change.config && html`<span class="dim">or change the schema:</span>`}${(change.judged > 0 || !change.config) && html`<${Saved} change=${change} />`}
        <button type="button" onClick=${() => { sessionStorage.setItem("toolcall-proxy schema", JSON.stringify(change.schema, null, 2)); setPage("try", { ...calls, edited: "1" }); }}>try this change</button>
        <${Copy} text=${() => yaml(change.schema_text)}>copy schema<//></div>`}</div>`)}
    ${waiting > 0 && html`<p class="dim" aria-busy="true">Trying ${waiting} more proposed schema${waiting === 1 ? "" : "s"} on the kept calls.</p>`}
    <div class="two"><div><h2>Mistakes</h2>
      <${Rows} label="mistakes" rows=${rows} empty="No mistake was counted." columns=${[
        ["parameter", (row) => html`<a href=${link("calls", { ...calls, path: row.path, ...(row.unknown ? {} : { [row.repaired ? "rule" : "code"]: row.code }) })}>${clean(row.path || "arguments")}</a>${row.unknown ? html` key <code>${clean(row.unknown)}</code>` : ""}`],
        ["mistake", (row) => html`${clean(row.unknown ? "unknown field" : mistake(row))}${row.keyword ? ` (${clean(row.keyword)})` : ""}${row.shapes ? html`<br /><span class="dim mono">${clean(Object.keys(row.shapes).slice(0, 3).join("  "))}</span>` : ""}`],
        ["calls", (row) => row.calls, true], ["last", (row) => time(row.last), true],
        ["right at the next try", (row) => share(row.right, row.retried), true],
      ]} /></div>
    <div><h2>Schema</h2><${Schema} schema=${value.schema} mistakes=${value.mistakes} calls=${value.calls} /></div></div>`;
}

// Returns the changes that are shown, those that save the most calls first, and how many schemas are still tried. Each
// proposed schema is tried once on the kept calls before it is shown. Where their arguments are not kept, their verdicts
// tell (`passes`).
function useTrials(changes, route, tool, values) {
  const [trials, set] = useState({});
  const waiting = changes.filter((change) => change.schema !== undefined && values !== "off" && !Object.hasOwn(trials, change.schema_text));
  const schema = waiting[0]?.schema_text;
  useEffect(() => {
    if (!schema) return undefined;
    let gone = false;
    const keep = (found) => { if (!gone) set((before) => ({ ...before, [schema]: found })); };
    ask("trial", { route, tool, schema, over: "kept" }).then(keep, () => keep(undefined));
    return () => { gone = true; };
  }, [schema]);
  const tried = changes.filter((change) => !waiting.includes(change)).map((change) => ({ ...change, ...weigh(change, trials[change.schema_text]) }));
  return [tried.sort((one, other) => other.saved - one.saved), waiting.length];
}
function weigh({ passes }, found) {
  const judged = found ? found.calls - found.cannot_tell : 0;
  return judged ? { judged, saved: found.newly_accepted, broken: found.newly_refused } : { judged, saved: passes };
}

function Saved({ change: { judged, saved, broken } }) {
  if (!judged) return html`<span>would fix ${saved ? `at least ${saved}` : "none"} of these calls</span>`;
  return html`<span>tried on ${judged} kept call${judged === 1 ? "" : "s"}: fixes ${saved}${broken ? html`, <b class="bad">${broken} that passed would be refused</b>` : ""}</span>`;
}

function setPage(page, params) { location.hash = link(page, params); }

// Shows the schema. Marks at a property give the shares of calls that its commonest mistake refused and repair mended.
function Schema({ schema, mistakes, calls }) {
  const lines = json(schema).split("\n");
  const names = new Map();
  for (const each of mistakes) {
    const name = each.path.split("/").filter((step) => step !== "*").pop();
    const kind = each.repaired ? "repaired" : "refused", hits = names.get(name) || {};
    if (name) names.set(name, { [kind]: each, ...hits });
  }
  return html`<div class="mono" role="group" aria-label="schema">${lines.map((line) => {
    const hit = names.get(/^\s*"([^"]+)": \{/.exec(line)?.[1]);
    return html`<div class=${hit ? "schema-line hit" : "schema-line"}>${line}${["refused", "repaired"].filter((kind) => hit?.[kind]).map((kind) => html` <span class=${kind}>${kind === "repaired" ? "~" : "!"} ${share(hit[kind].calls, calls)} ${kind}</span>`)}</div>`;
  })}</div>`;
}
