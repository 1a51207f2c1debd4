// The page "Overview": whether the proxy works, and what needs attention.
import { Bars, Failed, Rows, UNKNOWN, clean, html, link, mistake, ms, setParams, share, sum, toolName, useAnswer } from "./parts.js";

// Time window -> its number of bars, one for every 15 s.
const WINDOWS = { "1m": 4, "5m": 20, "15m": 60, "1h": 240 };

export function Overview({ params }) {
  const span = params.window || "15m", since = { since: span };
  const { value, error } = useAnswer(`overview?window=${span}`, 2000);
  const called = value?.tools.filter((row) => row.calls || row.safe_to_enforce);
  return html`<h1>Overview</h1><${Failed} error=${error} />
    ${value?.needs.length > 0 && html`<section class="needs" aria-label="needs you"><b>Needs you</b><ul>${value.needs.map((need) => html`<li><a href=${need.page}>! ${clean(need.text)}</a></li>`)}</ul></section>`}
    <div class="totals"><label class="inline">last <select value=${span} onChange=${(event) => setParams({ window: event.target.value })}>${Object.keys(WINDOWS).map((one) => html`<option>${one}</option>`)}</select></label>
      ${value && html`<${Totals} value=${value} since=${since} />`}</div>
    ${value && html`<${Bars} bars=${value.bars} slots=${WINDOWS[span] || 60} />`}
    <h2>Tools</h2>
    <${Rows} label="tools" rows=${called} empty=${`No tool was called in the last ${span}.`} columns=${columns(since, called)} />
    ${called?.length < value?.tools.length && html`<p><a href="#/tools">${value.tools.length - called.length} ${called.length ? "more tools" : "tools are"} served, without a call in the last ${span}</a></p>`}`;
}

function Totals({ value, since }) {
  const all = sum(value.totals);
  const figure = (name, title, number) => html`<a href=${link("calls", { ...since, outcome: name })}><b class=${name}>${share(number, all)}</b> ${title}</a>`;
  const rare = [["answered", "answered"], ["passthrough", "passthrough"], ["corrected", "corrected"], ["upstream_error", "upstream errors"], ["client_gone", "client gone"]].filter(([name]) => value.totals[name]);
  return html`<a href=${link("calls", since)}><b>${all.toLocaleString()}</b> requests</a>
    ${all > 0 && html`${figure("delivered", "delivered", value.totals.delivered || 0)} ${figure("repaired", "repaired", value.totals.repaired || 0)}
    ${figure("refused", "refused", value.totals.refused || 0)} ${figure("tool_error", "tool errors", value.totals.tool_error || 0)}
    ${rare.map(([name, title]) => figure(name, title, value.totals[name]))}
    <span><b>${ms(value.own_p95_ms)}</b> this proxy's own time (p95, refusals included)</span>`}`;
}

const columns = (since, rows) => {
  const of = (row, outcome) => link("calls", { ...since, tool: row.tool === UNKNOWN ? "" : row.tool, route: row.route, outcome });
  const part = (...outcomes) => (row) => {
    const number = outcomes.reduce((found, name) => found + (row.outcomes[name] || 0), 0);
    return html`<a class=${number ? outcomes[0] : "dim"} href=${of(row, outcomes.join())}>${share(number, row.calls)}</a>`;
  };
  return [
    ["tool", (row) => html`<a href=${row.tool === UNKNOWN || !row.tool ? link("calls", { ...since, route: row.route }) : link("tools", { route: row.route, tool: row.tool })}>${clean(toolName(row))}</a>${row.mode === "report" ? html` <span class="dim">report</span>` : ""} <span class="dim">${clean(row.route)}</span>`],
    ["calls", (row) => html`<a href=${of(row, "")}>${row.calls}</a>`, true],
    ["delivered", part("delivered"), true],
    ...["answered", "passthrough"].filter((name) => rows?.some((row) => row.outcomes[name])).map((name) => [name, part(name), true]),
    ["repaired or corrected", part("repaired", "corrected"), true], ["refused", part("refused"), true], ["tool errors", part("tool_error"), true],
    ["right after 1 retry", (row) => share(row.right, row.retried), true],
    ["worst parameter", (row) => row.safe_to_enforce ? html`<span class="good">would refuse 0 for 24 h: safe to enforce</span>` : row.worst
      ? html`<a href=${link("calls", { ...since, tool: row.tool, route: row.route, path: row.worst.path, [row.worst.repaired ? "rule" : "code"]: row.worst.code })}>${clean(row.worst.path || "arguments")} ${mistake(row.worst)}</a> <span class="dim">in ${row.worst.calls} call${row.worst.calls === 1 ? "" : "s"}</span>` : ""],
    ["took (p95)", (row) => ms(row.p95_ms), true],
  ];
};
