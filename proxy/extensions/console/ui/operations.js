// The pages "Conversations" (those that failed lately), "Upstreams" and "Config".
import { useState } from "./vendor/hooks.js";
import { ask } from "./api.js";
import { Failed, Rows, clean, html, json, link, ms, setParams, sum, time, useAnswer } from "./parts.js";

export function Conversations({ params, role }) {
  const answer = useAnswer(`conversations${params.waiting ? "?waiting=true" : ""}`, 2000);
  const [state, set] = useState({});
  const find = async (event) => {
    event.preventDefault();
    const name = new FormData(event.target).get("name");
    try { setParams({ hash: (await ask("conversations/find", { name })).conversations.join(","), waiting: "" }); set({}); } catch (error) { set({ error }); }
  };
  const reset = async (key) => {
    try { await ask("attempts/reset", { key }); set({ message: "Reset: its next call is attempt 1." }); answer.again(); } catch (error) { set({ error }); }
  };
  const hashes = params.hash?.split(",").filter(Boolean);
  const rows = answer.value?.attempts.filter((row) => !hashes || hashes.includes(row.conversation))
    .sort((one, other) => other.waiting - one.waiting || (one.last < other.last ? 1 : -1));
  return html`<h1>Conversations</h1><${Failed} error=${answer.error || state.error} />
    <form class="filters" onSubmit=${find}><label>find conversation ID<input name="name" required autocomplete="off" /></label><button>find</button>
      ${hashes && html`<button type="button" onClick=${() => setParams({ hash: "" })}>all</button>`}
      <label>show<select value=${params.waiting || ""} onChange=${(event) => setParams({ waiting: event.target.value })}><option value="">all that failed lately</option><option value="true">escalated</option></select></label></form>
    <p role="status">${state.message || ""}</p>
    ${rows?.some((row) => row.waiting) && html`<${WhatToDo} />`}
    <${Rows} label="conversations" rows=${rows} empty=${hashes ? "Nothing is remembered of this conversation." : "No conversation failed lately."} columns=${[
      ["conversation", (row) => html`<a class="mono" href=${link("calls", { conversation: row.conversation })}>${row.conversation.slice(0, 8)}</a>`],
      ["known by", (row) => row.source || ""], ["tool", (row) => clean(row.tool || "(unknown tools)")], ["attempts", (row) => `${Math.min(row.attempts, row.max_attempts)}/${row.max_attempts}`, true],
      ["state", (row) => row.waiting ? html`<b class="warn">Escalated, blocked</b>` : row.source === "address" ? "shared by all on one address: set X-Conversation-Id" : "trying"],
      ["last", (row) => time(row.last), true],
      ["history", (row) => row.history.length ? html`<details><summary>${row.history.length} line${row.history.length === 1 ? "" : "s"}</summary>${row.history.map((line) => html`<p>${clean(line)}</p>`)}</details>` : html`<span class="dim">–</span>`],
      ["action", (row) => role === "operator" ? html`<button type="button" onClick=${() => reset(row.key)}>reset</button>` : ""],
    ]} />`;
}

function WhatToDo() {
  return html`<section class="needs" aria-label="what to do"><b>What to do about an escalated conversation</b><ol>
    <li>Open its calls: the hash in the first column shows what the model sent and what it read.</li>
    <li>If the model lacks a value, give it to the agent or ask the user. The last answer asks the model to stop and to ask the user.</li>
    <li>If many conversations fail alike, change the schema or the description: see <a href="#/tools">Tools</a>, "What to change".</li>
    <li>Reset it: its next call is attempt 1 again. Without a reset, the proxy rejects the same arguments until the attempts expire.</li></ol></section>`;
}

export function Upstreams() {
  const { value, error } = useAnswer("upstreams", 2000);
  return html`<h1>Upstreams</h1><${Failed} error=${error} />
    <p class="dim">Requests, 5xx and resends since the start; faults and times of the last 15 minutes.</p>
    <${Rows} label="upstreams" rows=${value?.upstreams} empty="The config has no upstream." columns=${[
      ["upstream", (row) => html`${clean(row.upstream)}<br /><span class="dim">${clean(row.address)}</span>`],
      ["breaker", (row) => row.breaker === "none" ? html`<span class="dim">none configured</span>` : html`<b class=${{ open: "bad", "half-open": "warn" }[row.breaker] || "good"}>${row.breaker.toUpperCase()}</b>`],
      ["since", (row) => time(row.breaker_since) || (row.breaker === "none" ? "" : "the start")],
      ["connections", (row) => row.connections.most ? `${row.connections.open} open (${row.connections.idle} idle) of ${row.connections.most}` : html`<span class="dim">none of its own</span>`],
      ["requests", (row) => sum(row.requests), true], ["5xx", (row) => row.requests["5xx"] || 0, true],
      ["faults", (row) => Object.entries(row.faults).map(([name, number]) => `${name} ${number}`).join(", ") || "none"],
      ["resent", (row) => row.resent, true], ["p50 time", (row) => ms(row.p50_ms), true], ["p95 time", (row) => ms(row.p95_ms), true],
      ["changes", (row) => row.changes.length === 0 ? "none" : html`<details><summary>${row.changes.length}</summary>${row.changes.map((each) => html`<p>${time(each.timestamp)} ${each.state}</p>`)}</details>`],
    ]} />`;
}

export function Config({ role }) {
  const answer = useAnswer("reloads", 1000), level = useAnswer("log-level"), written = useAnswer(answer.value ? `config?digest=${answer.value.digest}` : "");
  const [state, set] = useState({});
  const act = async (path, body, message) => {
    try { await ask(path, body); set({ message }); } catch (error) { set(error.value?.mistakes ? { told: "The change has errors and is not in use." } : { error }); }
    answer.again();
    level.again();
  };
  const value = answer.value, since = value?.reloads.find((row) => row.digest === value.digest && row.result !== "failure");
  return html`<h1>Config</h1><${Failed} error=${answer.error || state.error} />
    ${value && html`<p>serving config <b class="mono">${value.digest.slice(0, 8)}</b>${since ? ` since ${time(since.timestamp)}` : ""} <span class="dim">· files: ${value.files.map(clean).join(", ")}</span></p>
      ${value.mistakes.length > 0 && html`<section class="needs" aria-label="not in use"><p><b>This change has errors and is not in use</b></p><ul>${value.mistakes.map((mistake) => html`<li class="mono">${clean(mistake)}</li>`)}</ul></section>`}
      ${value.restart_needed.length > 0 && html`<p class="warn">needs a restart: ${value.restart_needed.map(clean).join(", ")}</p>`}
      ${role === "operator" && html`<div class="actions"><button type="button" onClick=${() => act("reload", {}, "Looked at the files.")}>reload now</button>
        <label>log level<select value=${level.value?.level || "info"} onChange=${(event) => act("log-level", { level: event.target.value }, "Log level set.")}>${["debug", "info", "warning", "error"].map((one) => html`<option>${one}</option>`)}</select></label>
        <span role="status">${state.message || ""}</span></div>`}
      <h2>Reload history</h2>
      <${Rows} label="reloads" rows=${value.reloads} empty="Nothing since the start." columns=${[
        ["at", (row) => time(row.timestamp)], ["result", (row) => html`<span class=${row.result === "failure" ? "bad" : "good"}>${row.result}</span>`],
        ["config", (row) => html`<span class="mono">${row.digest.slice(0, 8)}</span>`],
        ["changed", (row) => row.changed.map(clean).join(", ")], ["errors", (row) => row.mistakes.map((mistake) => html`<p class="mono">${clean(mistake)}</p>`)],
      ]} />`}
    <h2>As written</h2><p class="dim">The files in use, as JSON. Secrets are <code>***</code>, and each <code>\${...}</code> is shown as written.</p><${Failed} error=${written.error} />
    ${written.value && html`<pre tabindex="0" aria-label="config">${json(written.value.config)}</pre>`}`;
}
