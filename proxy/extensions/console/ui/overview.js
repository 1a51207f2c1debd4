// The page "Overview": whether the proxy works, and what needs attention.
import { Bars, Failed, Rows, UNKNOWN, clean, coded, html, link, mistake, ms, setParams, share, shares, sum, toolName, useAnswer } from "./parts.js";

// Time window -> its number of bars, one for every 15 s.
const WINDOWS = { "1m": 4, "5m": 20, "15m": 60, "1h": 240 };

export function Overview({ params }) {
  const span = params.window || "15m", since = { since: span };
  const { value, error } = useAnswer(`overview?window=${span}`, 2000);
  const called = value?.tools.filter((row) => row.calls || row.safe_to_enforce);
  return html`<h1>Overview</h1><${Failed} error=${error} />
    ${value?.needs.length > 0 && html`<section class="needs" aria-label="needs attention"><b>Needs attention</b><ul>${value.needs.map((need) => html`<li><a href=${need.page}>${coded(need.text)}</a></li>`)}</ul></section>`}
    <div class="totals"><label class="inline">last <select value=${span} onChange=${(event) => setParams({ window: event.target.value })}>${Object.keys(WINDOWS).map((one) => html`<option>${one}</option>`)}</select></label>
      ${value && html`<${Totals} value=${value} since=${since} />`}</div>
    ${value && html`<${Bars} bars=${value.bars} slots=${WINDOWS[span] || 60} />`}
    <h2>Tools</h2>
    <${Rows} label="tools" rows=${called} empty=${`No tool was called in the last ${span}.`} columns=${columns(since, called)} />
    ${called?.length < value?.tools.length && html`<p><a href="#/tools">${value.tools.length - called.length} ${called.length ? "more tools" : "tools are"} served, without a call in the last ${span}</a></p>`}`;
}

function Totals({ value, since }) {
  const all = sum(value.totals), part = shares(value.totals);
  const figure = (name, title) => html`<a href=${link("calls", { ...since, outcome: name })}><b class=${name}>${part[name] || "0 %"}</b> ${title}</a>`;
  const rare = [["answered", "answered"], ["passthrough", "passthrough"], ["corrected", "corrected"], ["withheld", "withheld"], ["client_gone", "client gone"]].filter(([name]) => value.totals[name]);
  return html`<a href=${link("calls", since)}><b>${all.toLocaleString()}</b> requests</a>
    ${all > 0 && html`${figure("delivered", "delivered")} ${figure("repaired", "repaired")} ${figure("refused", "refused")} ${figure("tool_error", "tool errors")}
    ${figure("upstream_error", "upstream errors")} ${rare.map(([name, title]) => figure(name, title))}
    <span><b>${ms(value.own_p95_ms)}</b> this proxy's own time (p95, refusals included)</span>`}`;
}

// The columns of shares: title, and the outcomes that it adds up. Together they hold every outcome. A column of the second list is
// shown if a tool has such calls.
const SHARES = [["delivered", "delivered"], ["repaired or corrected", "repaired", "corrected"], ["refused", "refused"], ["tool errors", "tool_error"], ["failed", "upstream_error"]];
const RARE = [["answered", "answered"], ["passthrough", "passthrough"], ["withheld", "withheld"], ["client gone", "client_gone"]];
const columns = (since, rows) => {
  const of = (row, outcome) => link("calls", { ...since, tool: row.tool === UNKNOWN ? "" : row.tool, route: row.route, outcome });
  const shown = [...SHARES, ...RARE.filter(([, name]) => rows?.some((row) => row.outcomes[name]))];
  const parts = new Map((rows || []).map((row) => [row, shares(Object.fromEntries(shown.map(([title, ...names]) => [title, names.reduce((number, name) => number + (row.outcomes[name] || 0), 0)])))]));
  return [
    ["tool", (row) => html`<a href=${row.tool === UNKNOWN || !row.tool ? link("calls", { ...since, route: row.route }) : link("tools", { route: row.route, tool: row.tool })}>${clean(toolName(row))}</a>${row.mode === "report" ? html` <span class="dim">report</span>` : ""} <span class="dim">${clean(row.route)}</span>`],
    ["calls", (row) => html`<a href=${of(row, "")}>${row.calls}</a>`, true],
    ...shown.map(([title, ...names]) => [title, (row) => html`<a class=${parts.get(row)?.[title] ? names[0] : "dim"} href=${of(row, names.join())}>${parts.get(row)?.[title] || (row.calls ? "0 %" : "–")}</a>`, true]),
    ["right after 1 retry", (row) => share(row.right, row.retried), true],
    ["what models get wrong", (row) => row.safe_to_enforce ? html`<span class="good">would refuse 0 for 24 h: safe to enforce</span>` : html`${row.summary && html`<p><a href=${link("tools", { route: row.route, tool: row.tool })}>${coded(row.summary)}</a></p>`}${row.worst && html`<span class=${row.summary ? "dim" : ""}><${Worst} row=${row} since=${since} /></span>`}`],
    ["duration (p95)", (row) => ms(row.p95_ms), true],
  ];
};

function Worst({ row: { worst, ...row }, since }) {
  return html`<a href=${link("calls", { ...since, tool: row.tool, route: row.route, path: worst.path, [worst.repaired ? "rule" : "code"]: worst.code })}>${clean(worst.path || "arguments")} ${mistake(worst)}</a> <span class="dim">in ${worst.calls} call${worst.calls === 1 ? "" : "s"}</span>`;
}
