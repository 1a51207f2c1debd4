// Does it work, and where should one look?
import { Bars, Failed, Rows, clean, good, html, link, ms, setParams, share, sum, useAnswer } from "./parts.js";

export function Overview({ params }) {
  const span = params.window || "15m";
  const { value, error } = useAnswer(`overview?window=${span}`, 1000);
  if (!value) return html`<h1>Overview</h1><${Failed} error=${error} />`;
  const all = sum(value.totals), since = { since: span };
  const called = value.tools.filter((row) => row.calls || row.safe_to_enforce);
  const figure = (name, title, number) => html`<a href=${link("calls", { ...since, outcome: name })}><b class=${name}>${share(number, all)}</b> ${title}</a>`;
  return html`<h1>Overview</h1><${Failed} error=${error} />
    ${value.needs.length > 0 && html`<section class="needs" aria-label="needs you"><ul>${value.needs.map((need) => html`<li><a href=${need.page}>! ${clean(need.text)}</a></li>`)}</ul></section>`}
    <div class="totals"><label>last <select value=${span} onChange=${(event) => setParams({ window: event.target.value })}>${["1m", "5m", "15m", "1h"].map((one) => html`<option>${one}</option>`)}</select></label>
      <a href=${link("calls", since)}><b>${all.toLocaleString()}</b> requests</a>
      ${figure("delivered", "ok", good(value.totals))} ${figure("repaired", "repaired", value.totals.repaired || 0)}
      ${figure("refused", "refused", value.totals.refused || 0)} ${figure("tool_error", "tool errors", value.totals.tool_error || 0)}
      ${value.totals.upstream_error ? figure("upstream_error", "upstream errors", value.totals.upstream_error) : ""}
      <span><b>${ms(value.own_p95_ms)}</b> own time p95</span></div>
    <${Bars} bars=${value.bars} />
    <h2>Tools</h2>
    <${Rows} label="tools" rows=${called} empty="No tool was called yet." columns=${columns(since)} />
    ${called.length < value.tools.length && html`<p><a href="#/tools">${value.tools.length - called.length} more without a call</a></p>`}`;
}

const columns = (since) => {
  const of = (row, outcome) => link("calls", { ...since, tool: row.tool, route: row.route, outcome });
  const part = (outcome) => (row) => html`<a class=${outcome} href=${of(row, outcome)}>${share(row.outcomes[outcome] || 0, row.calls)}</a>`;
  return [
    ["tool", (row) => html`<a href=${link("tools", { route: row.route, tool: row.tool })}>${clean(row.tool || row.route)}</a>${row.mode === "report" ? html` <span class="dim">report</span>` : ""} <span class="dim">${clean(row.route)}</span>`],
    ["calls", (row) => html`<a href=${of(row, "")}>${row.calls}</a>`, true],
    ["ok", (row) => html`<a class="delivered" href=${of(row, "delivered")}>${share(good(row.outcomes), row.calls)}</a>`, true],
    ["repaired", part("repaired"), true], ["refused", part("refused"), true], ["tool errors", part("tool_error"), true],
    ["right after a retry", (row) => share(row.right, row.retried), true],
    ["worst parameter", (row) => row.safe_to_enforce ? html`<span class="good">would refuse 0 for 24 h: safe to enforce</span>` : row.worst
      ? html`<a href=${link("calls", { ...since, tool: row.tool, route: row.route, path: row.worst.path, [row.worst.repaired ? "rule" : "code"]: row.worst.code })}>${clean(row.worst.path || "arguments")} ${row.worst.code}</a> <span class="dim">${row.worst.calls} ×</span>` : ""],
    ["p95", (row) => ms(row.p95_ms), true],
  ];
};
