// The page "Calls": the last calls, updated every second or two, and one call in full. Older and sorted calls stand still: such a
// page is read once.
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { ask, query } from "./api.js";
import { focusIfAsked } from "./keys.js";
import { Asking, Copy, Failed, Rows, clean, coded, html, json, link, ms, setParams, time, useAnswer, words } from "./parts.js";
import { NAMES as SEARCHED, findOutcomes, readSearch, suggest, writeSearch } from "./search.js";

const SHOWN = 200;
// After this many answers without a new call the calls are asked for every two seconds.
const SILENT = 10;
const ORDERS = { "": "newest first", time: "oldest first", tool: "tool, a to z", "-tool": "tool, z to a", outcome: "outcome, a to z", "-outcome": "outcome, z to a", "-attempts": "most attempts first", attempts: "fewest attempts first", "-duration": "slowest first", duration: "quickest first" };
// The heads of the list: for each its columns by title, with the order that a first click asks for.
const HEADS = [[["time", "-time"]], [["tool", "tool"]], [["outcome", "outcome"], ["attempts", "-attempts"]], [["parameter and reason"]], [["duration (own)", "-duration"]], [["conversation"]]];
const NAMES = ["tool", "model", "route", "outcome", "code", "rule", "path", "conversation", "request_id", "trace_id", "text", "since", "sort", "before"];

export function Calls({ params }) {
  const wanted = Object.fromEntries(NAMES.filter((name) => params[name] && !(name === "sort" && params.thread)).map((name) => [name, params[name]]));
  const filter = query({ ...wanted, outcome: wanted.outcome && findOutcomes(wanted.outcome).split(",") });
  const { calls, fresh, state, error, asking, show } = useCalls(filter, params.pause);
  const known = useNames(calls);
  useEffect(focusIfAsked, []);
  return html`<h1>Calls</h1>
    <${Search} params=${params} known=${known} sort=${wanted.sort || ""} />
    <div class="actions"><button type="button" aria-pressed=${params.pause ? "true" : "false"} onClick=${() => setParams({ pause: params.pause ? "" : "1" })}>${params.pause ? "resume" : "pause"}</button>
      ${filter ? html`<a href="#/calls">all calls</a>` : ""}
      <span class="dim">${filter && state.kept && !params.before && !state.has_older ? `${calls.length.toLocaleString()} found, ` : ""}${(state.kept ?? 0).toLocaleString()} calls kept (at most ${(state.bound ?? 0).toLocaleString()})</span>
    </div><${Failed} error=${error} />
    ${fresh > 0 && html`<p><button type="button" onClick=${show}>${fresh} new</button></p>`}
    ${params.conversation && html`<p><a href=${link("calls", { ...params, thread: params.thread ? "" : "1", sort: "", open: "" })}>${params.thread ? "as a list" : "as a thread"}</a></p>`}
    ${params.thread && calls.length ? html`<${Thread} calls=${calls} />` : html`<${List} calls=${calls} asking=${asking} filter=${filter} open=${params.open} sort=${wanted.sort || "-time"} />`}
    <p class="actions">${params.before && html`<a href=${link("calls", { ...params, before: "", open: "" })}>newest</a>`}${state.has_older && html`<a href=${link("calls", { ...params, before: older(calls, state, params.before), open: "" })}>older calls</a>`}</p>
    ${params.open && !params.thread && !calls.some((call) => call.id === params.open) && html`<${Open} id=${params.open} />`}`;
}

// One field for all filters. The address holds them one by one, so that links of other pages and views that were sent work.
function Search({ params, known, sort }) {
  const written = writeSearch(params);
  const [text, setText] = useState(written);
  useEffect(() => setText(written), [written]);
  const enter = (typed) => setParams({ before: "", open: "", ...readSearch(typed.trim(), known) });
  // A suggestion that was chosen is whole; what is typed is entered with Enter, or by leaving the field.
  const type = (event) => {
    setText(event.target.value);
    if ((!event.inputType || event.inputType === "insertReplacementText") && !/[:\s]$/.test(event.target.value)) enter(event.target.value);
  };
  return html`<form class="filters" role="search" onSubmit=${(event) => { event.preventDefault(); enter(text); }}>
      <label class="wide">search<input id="search" type="search" list="suggestions" autocomplete="off" spellcheck="false" placeholder="tool:weather outcome:refused /lat" value=${text} onInput=${type} onChange=${(event) => enter(event.target.value)} /></label>
      <datalist id="suggestions">${suggest(text, known).map((one) => html`<option value=${one} />`)}</datalist>
      <span class="field"><label for="filter-sort">order</label><select id="filter-sort" value=${sort} onChange=${(event) => setSort(event.target.value)}>${Object.entries(ORDERS).map(([one, title]) => html`<option value=${one}>${title}</option>`)}</select></span>
    </form>
    <details class="syntax dim"><summary>how to search</summary><dl>${Object.entries(SEARCHED).map(([short, [, about]]) => html`<dt><code>${short}:</code></dt><dd>${about}</dd>`)}<dt>other words</dt><dd>anywhere in what a call shows</dd></dl><p>A part of a name is enough: <code>tool:weath</code>.</p></details>`;
}

const setSort = (sort) => setParams({ before: "", thread: "", sort: sort === "-time" ? "" : sort });
const reverse = (sort) => (sort[0] === "-" ? sort.slice(1) : `-${sort}`);
// A click on a head sorts by its column, another one the other way round, and a third one by time again.
function Head({ title, first, sort }) {
  if (!first) return html`<span>${title}</span>`;
  const on = sort === first || sort === reverse(first);
  return html`<button type="button" aria-pressed=${on ? "true" : "false"} title=${`sort by ${title}`} onClick=${() => setSort(sort === first ? reverse(first) : on ? "-time" : first)}>${title}${on ? (sort[0] === "-" ? " ↓" : " ↑") : ""}</button>`;
}

function List({ calls, asking, filter, open, sort }) {
  return html`${(calls.length > 0 || asking) && html`<div class="heads dim" role="group" aria-label="order">${HEADS.map((head) => html`<span>${head.map(([title, first]) => html`<${Head} title=${title} first=${first} sort=${sort} />`)}</span>`)}</div>`}
    ${calls.length ? html`<ul class="calls" aria-label="calls">${calls.map((call) => html`<${Row} key=${call.id} call=${call} open=${open === call.id} />`)}</ul>`
      : asking ? html`<${Asking} />` : html`<p class="dim">No call here${filter ? " with this filter" : " yet: send one, and it is shown within two seconds"}.</p>`}`;
}

// A conversation as it went: what the model sent, what it read, what it sent then.
const MOST_IN_THREAD = 20;
function Thread({ calls }) {
  const shown = calls.slice(0, MOST_IN_THREAD).reverse();
  const last = shown.at(-1), number = calls.length > shown.length ? `The last ${shown.length} of ${calls.length} calls` : shown.length > 1 ? `${shown.length} calls` : "One call";
  return html`<p class="dim">${number}, ${time(shown[0].timestamp)} to ${time(last.timestamp)}, the last one <span class=${last.outcome}>${words(last.outcome)}</span>.</p>
    <ol class="thread" aria-label="the conversation, oldest call first">${shown.map((call) => html`<li key=${call.id}><${Open} id=${call.id} at=${time(call.timestamp)} /></li>`)}</ol>`;
}

// Reads the calls of a filter every second, or every two while none come. While the list is paused, hovered or focused, new calls wait in `waiting`, and
// their number stands on a button that shows them. After a change of filter no calls of the earlier filter are returned.
const NONE = { calls: [], waiting: [], state: {} };
function useCalls(filter, pause) {
  const [found, set] = useState(NONE);
  const list = found.filter === filter ? found : NONE;
  const still = useRef(false);
  const once = /(^|&)(before|sort)=/.test(filter);
  useEffect(() => {
    const stop = new AbortController();
    let cursor = "", timer = 0, silent = 0;
    const look = async () => {
      if (!document.hidden) {
        try {
          const answer = await ask(`calls?${filter}&limit=${SHOWN}${cursor ? `&after=${encodeURIComponent(cursor)}` : ""}`, undefined, stop.signal);
          if (stop.signal.aborted) return;
          const first = !cursor;
          cursor = answer.cursor;
          silent = answer.calls.length ? 0 : silent + 1;
          still.current = !!pause || !!document.querySelector(".calls:hover, .calls:focus-within");
          set((before) => {
            const waiting = first ? [] : [...answer.calls, ...before.waiting].slice(0, SHOWN);
            if (first) return { filter, calls: answer.calls, waiting, state: answer };
            answer.has_older = before.state.has_older || before.calls.length + answer.calls.length > SHOWN;
            return still.current ? { filter, calls: before.calls, waiting, state: answer } : { filter, calls: [...waiting, ...before.calls].slice(0, SHOWN), waiting: [], state: answer };
          });
        } catch (error) {
          if (stop.signal.aborted) return;
          cursor = error.status ? "" : cursor;
          set((before) => ({ ...(before.filter === filter ? before : NONE), filter, error }));
        }
      }
      if (!stop.signal.aborted && !(once && cursor)) timer = setTimeout(look, silent > SILENT ? 2000 : 1000);
    };
    look();
    return () => { stop.abort(); clearTimeout(timer); };
  }, [filter, pause]);
  const show = () => set((before) => ({ ...before, calls: [...before.waiting, ...before.calls].slice(0, SHOWN), waiting: [] }));
  return { calls: list.calls, fresh: list.waiting.length, state: list.state, error: list.error, asking: list.state === NONE.state, show };
}

// The position behind the calls that are shown. That of an answer holds while the list stands still; a list that has moved
// on is behind the oldest call shown of each worker, or behind all calls of a worker of which none is shown.
function older(calls, state, still) {
  if (still) return state.older;
  return state.cursor.split(",").map((pair) => {
    const [boot, last] = pair.split(".");
    const shown = calls.filter((call) => call.id.startsWith(`${boot}.`)).map((call) => call.seq);
    return `${boot}.${shown.length ? Math.min(...shown) : Number(last) + 1}`;
  }).join();
}

// The names that the shown calls have, and those of the last hour's overview, as suggestions for the search.
function useNames(calls) {
  const { value } = useAnswer("overview?window=1h");
  const rows = value?.tools || [];
  const found = { tool: new Set(rows.map((row) => row.tool).filter(Boolean)), route: new Set(rows.map((row) => row.route)), model: new Set(), code: new Set(), rule: new Set(), path: new Set() };
  for (const { worst } of rows) if (worst) { found.path.add(worst.path); found[worst.repaired ? "rule" : "code"].add(worst.code); }
  for (const call of calls) {
    if (call["gen_ai.tool.name"]) found.tool.add(call["gen_ai.tool.name"]);
    if (call["gen_ai.request.model"]) found.model.add(call["gen_ai.request.model"]);
    if (call["error.code"]) found.code.add(call["error.code"]);
    for (const error of call.errors || []) { found.code.add(error.code); found.path.add(error.path); }
    for (const repair of call.repairs || []) { found.rule.add(repair.rule); found.path.add(repair.path); }
  }
  return found;
}

const short = (text) => (text.length > 60 ? `${text.slice(0, 60)}…` : text);
export const reason = (call) => {
  const [error] = call.errors || [], [repair] = call.repairs || [];
  if (error) return `${error.path || "arguments"} ${error.code}${error.expected ? ` wants ${short(error.expected)},` : ""} got ${error.got}`;
  if (call["error.type"] || !repair) return [call["error.type"] && call["error.type"] + (call.refused_by ? ` by ${call.refused_by}` : ""), (call.earlier || []).at(-1) || said(call), call.nearest_route && `nearest route ${call.nearest_route}`].filter(Boolean).join(": ");
  return `${repair.path || "arguments"} ${repair.rule}${repair.renamed ? ` renamed to ${repair.renamed}` : repair.became ? ` (${repair.got} → ${repair.became})` : ""}`;
};
// The words of a tool or a hook are hidden; the status that the tool answered with is not.
const said = (call) => (call.reason !== "***" ? call.reason : call["upstream.status_code"] >= 400 ? `the tool answered ${call["upstream.status_code"]}` : "");
const outcome = (call) => words(call.outcome) + (call.would_refuse ? " (would refuse)" : "") + (call.retry_attempt ? ` ${Math.min(call.retry_attempt, call.max_retries)}/${call.max_retries}` : "");
const model = (call) => call["gen_ai.tool.name"] && call["gen_ai.request.model"];
const name = (call) => (model(call) ? `${call["gen_ai.tool.name"]} (${model(call)})` : call["gen_ai.tool.name"]) || `${call["http.request.method"] || ""} ${call["http.route"] || call["url.path"] || "(no route)"}`;

function Row({ call, open }) {
  const more = (call.errors || call.repairs || []).length - 1;
  return html`<li><button type="button" class="call" aria-expanded=${open ? "true" : "false"} onClick=${() => setParams({ open: open ? "" : call.id })}>
      <span>${time(call.timestamp)}</span><span>${clean(name(call))}</span><span class=${call.outcome}>${outcome(call)}</span>
      <span>${clean(reason(call))}${more > 0 ? html` <span class="dim">+${more} more</span>` : ""}</span>
      <span class="dim">${ms(call.duration_ms)}${call.overhead_ms != null ? `, own ${ms(call.overhead_ms)}` : ""}</span>
      <span class="dim">${call.conversation ? `${call.conversation.slice(0, 4)} ${call["conversation.source"] || ""}` : ""}</span></button>
    ${open && html`<${Open} id=${call.id} />`}</li>`;
}

function Open({ id, at: stamp = "" }) {
  const { value: call, error } = useAnswer(`calls/${encodeURIComponent(id)}`);
  if (!call) return html`<div class="open"><${Failed} error=${error} /></div>`;
  const tool = { route: call["http.route"], tool: call["gen_ai.tool.name"] };
  const times = Object.entries(call.stages_ms || {});
  return html`<section class="open" aria-label="one call"><h2>${stamp} ${clean(name(call))}, ${outcome(call)}</h2>
    <div class="actions"><span class="dim">request ${clean(call.correlation_id)}${call.trace_id ? ` · trace ${clean(call.trace_id)}` : ""}</span>
      <${Copy} text=${() => JSON.stringify(call, null, 2)}>copy as JSON<//>
      ${call.target && html`<${Copy} text=${() => curl(call)}>copy as curl<//>`}
      ${call.replay && html`<${Copy} text=${() => testLine(call, tool)}>copy as replay line<//>`}
      ${call.expected && html`<${Copy} text=${() => testLine(call, tool, true)}>copy as test case<//>`}
      ${call.no_copy && html`<span class="dim">${coded(call.no_copy)}</span>`}
      ${tool.tool && html`<a href=${link("try", { ...tool, call: call.id })}>try it</a> <a href=${link("tools", tool)}>the tool</a>`}</div>
    <${Rows} label="what was received and sent" rows=${places(call)} empty=${call.reason ? "No place in its arguments is named." : "Nothing was wrong with its arguments."} columns=${[
      ["parameter", (row) => html`<code>${clean(row.path || "arguments")}</code>`],
      ["received", (row) => html`<span class="minus">- ${clean(row.got)}</span>`],
      ["sent to the tool", (row) => row.became ? html`<span class="plus">+ ${row.renamed ? html`<code>${clean(row.renamed)}</code> ` : ""}${clean(row.became)}</span>` : html`<span class="dim">not sent</span>`],
      ["why", (row) => html`${row.rule || row.code}${row.expected ? ` wants ${clean(row.expected)}` : ""}${row.message ? html`<br /><span class="dim">${clean(row.message)}</span>` : ""}`],
    ]} />
    ${call.came !== undefined && html`<div class="two"><div><h2>Received</h2><pre tabindex="0">${json(call.came)}</pre></div>${call.went !== undefined && html`<div><h2>Sent to the tool</h2><pre tabindex="0">${json(call.went)}</pre></div>`}</div>`}
    ${call.reason && html`<h2>Why</h2><p>${clean(said(call) || call["error.type"])}</p>${(call.earlier || []).map((line) => html`<p class="refused">${clean(line)}</p>`)}`}
    ${call.model_read && html`<h2>What the model read${call.masked ? ", values masked" : ""}</h2>${call.masked && html`<${Hidden} />`}<pre tabindex="0">${clean(call.model_read)}</pre>`}
    ${(call.replaced || []).map((answer, index) => html`<${Replaced} answer=${answer} number=${index + 1} />`)}
    <p class="dim">${times.map(([stage, took]) => `${stage}${STAGE_WORDS[stage] || ""} ${ms(took)}`).join(" · ")} · ${call["server.address"] ? `upstream ${clean(call["server.address"])}${call["upstream.status_code"] ? ` answered ${call["upstream.status_code"]}` : ""}` : "upstream not asked"}</p>
    ${model(call) && html`<p><a href=${link("calls", { model: model(call) })}>the calls of this model</a>${call["chat.attempts"] ? html` <span class="dim">answered ${call["chat.attempts"] === "1" ? "once" : `${call["chat.attempts"]} times`}, ${call["chat.tokens_again"]} tokens for asking again</span>` : ""}</p>`}
    ${call.conversation && !stamp && html`<p><a href=${link("calls", { conversation: call.conversation })}>the calls of this conversation</a> <span class="dim mono">${call.conversation.slice(0, 8)} by ${call["conversation.source"] || "?"}</span></p>`}
  </section>`;
}

const Hidden = () => html`<details class="dim"><summary>why is this hidden?</summary><p>The values of calls are not kept, and the words of a tool or a hook may repeat them. The model read them. To see them here, set <code>admin.values: preview</code> and log in with <code>admin.token</code>.</p></details>`;

// An answer of the model that another one took the place of: each call as it came, and what the model read of it.
function Replaced({ answer, number }) {
  return html`<h2>Answer ${number}, after which the model was asked again <span class="dim">(${answer.tokens.toLocaleString()} tokens)</span></h2>
    ${answer.calls.map((each) => html`<p>${clean(each["gen_ai.tool.name"])} <span class=${each["error.type"] ? "refused" : "dim"}>${each["error.type"] ? clean(reason(each)) : "valid"}</span></p>
      <div class=${each.came === undefined ? "" : "two"}>${each.came !== undefined && html`<div><p class="dim">received</p><pre tabindex="0">${json(each.came)}</pre></div>`}<div><p class="dim">what the model read, values masked</p><pre tabindex="0">${clean(each.model_read)}</pre></div></div>`)}`;
}

const STAGE_WORDS = { gather: " (waits for parallel calls, so that they count as one attempt)", total: " (this proxy's own)" };
const at = (value, path) => path.split("/").slice(1).reduce((inner, step) => inner?.[step.replaceAll("~1", "/").replaceAll("~0", "~")], value);
function places(call) {
  const shown = (value, words) => (value === undefined ? words : JSON.stringify(value));
  return [
    ...(call.errors || []).map((each) => ({ ...each, got: shown(at(call.came, each.path), each.got) })),
    ...(call.repairs || []).map((each) => ({ ...each, got: shown(at(call.came, each.path), each.got || "as it was"), became: shown(at(call.went, each.renamed || each.path), each.became || "changed") })),
  ];
}
// A line that `replay` judges; a test case holds the right arguments too (null: it is right to refuse them). The schema and
// the arguments are put in as the texts that the proxy gives, because numbers of JavaScript are not exact.
async function testLine(call, { route, tool }, whole) {
  const { schema_text: schema } = await ask(`tools/${encodeURIComponent(route)}/${encodeURIComponent(tool)}`);
  const [id, name, sent] = [call.id, tool, call.sent].map((text) => JSON.stringify(text));
  return `{"id":${id},"tool":${name},"schema":${schema},"sent":${sent}${whole ? `,"expected":${call.expected}` : ""}}`;
}
const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
// A proxy that listens at all addresses is reached at the one by which this page is.
async function curl(call) {
  const { listen } = await ask("overview?window=1m");
  const [socket, base] = listen.startsWith("unix:") ? [`--unix-socket ${quote(listen.slice(5))} `, "localhost"] : ["", listen.replace(/\/\/(0\.0\.0\.0|\[::\])(?=:)/, `//${location.hostname}`)];
  const method = call["http.request.method"] || "POST";
  return `curl -s ${method === "POST" ? "" : `-X ${method} `}${socket}${quote(base + call.target)} -H 'Content-Type: application/json' -d ${quote(call.sent)}`;
}
