// The shell: header, navigation, login, and the page that the address names.
import { render } from "./vendor/preact.js";
import { useEffect, useLayoutEffect, useState } from "./vendor/hooks.js";
import { ask, dropToken, hasToken, setToken, takeToken } from "./api.js";
import { clean, html, readHash } from "./parts.js";
import { Keys, takeKey } from "./keys.js";
import { Overview } from "./overview.js";
import { Calls } from "./calls.js";
import { Tool } from "./tool.js";
import { Try } from "./try.js";
import { Config, Conversations, Upstreams } from "./operations.js";

const PAGES = { overview: ["Overview", Overview], calls: ["Calls", Calls], tools: ["Tools", Tool], try: ["Try it", Try], conversations: ["Conversations", Conversations], upstreams: ["Upstreams", Upstreams], config: ["Config", Config] };
const THEMES = ["auto", "light", "dark"];

function NotFound() {
  return html`<h1>Page not found</h1><p>The address names no page of the console: <a href="#/overview">overview</a>.</p>`;
}

// Returns the page and the parameters in the address. A layout effect adds the listener before the first paint; an effect
// would add it after the paint and could miss a change of the address.
function useHash() {
  const [hash, set] = useState(readHash());
  useLayoutEffect(() => {
    const look = () => { if (takeToken()) dispatchEvent(new Event("login")); set(readHash()); };
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return hash;
}

// Reads the data of the header every 2 s. The error of a failed read shows that the proxy does not answer, or that a token
// is needed.
function useAbout() {
  const [state, set] = useState({});
  useEffect(() => {
    let timer = 0, known = false, last = 0;
    const look = async () => {
      const mine = ++last;
      clearTimeout(timer);
      if (!document.hidden || !known) {
        try {
          const about = await ask("overview?window=1m", undefined, undefined, known ? 2 : 0);
          if (mine !== last) return;
          known = true;
          set({ about });
        } catch (error) {
          if (mine !== last) return;
          known = false;
          set((before) => ({ about: error.status ? undefined : before.about, error }));
          // A token that is refused is not sent again: the tenth wrong one locks this address out for a minute.
          if (error.status === 401 || error.status === 403) return;
        }
      }
      timer = setTimeout(look, 2000);
    };
    look();
    addEventListener("login", look);
    return () => { last = -1; clearTimeout(timer); removeEventListener("login", look); };
  }, []);
  return state;
}

function Login({ error }) {
  const enter = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token"));
    dispatchEvent(new Event("login"));
  };
  return html`<main class="login"><h1>toolcall-proxy</h1><p>Enter the token of the operator's port: <code>admin.token</code> of the config, or <code>admin.readers</code>.</p>
    <form onSubmit=${enter}><label>token<input type="password" name="token" required autocomplete="off" autofocus /></label> <button>log in</button></form>
    <p role="alert" class="bad">${hasToken() && error.status === 401 ? "This token is wrong." : error.status === 429 ? clean(error.message) : ""}</p></main>`;
}

function Shell() {
  const { page, params } = useHash();
  const { about, error } = useAbout();
  const [theme, setTheme] = useState(localStorage.getItem("theme") || "auto");
  useEffect(() => { document.documentElement.dataset.theme = theme; localStorage.setItem("theme", theme); }, [theme]);
  const [title, Page] = Object.hasOwn(PAGES, page) ? PAGES[page] : ["Page not found", NotFound];
  useEffect(() => { document.title = `${title} · toolcall-proxy`; }, [title]);
  if (error && [401, 403, 429].includes(error.status)) return html`<${Login} error=${error} />`;
  const state = !about ? "" : error ? "DOES NOT ANSWER" : about.status === "draining" ? "DRAINING" : "READY";
  const other = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>to the content</a>
    <header class="top"><div class="row"><b>toolcall-proxy ${about?.version || ""}</b><b class=${state === "READY" ? "good" : "bad"} role="status">${state}</b>
      ${about?.needs.length > 0 && html`<a class="warn" href="#/overview">${about.needs.length} need${about.needs.length > 1 ? "" : "s"} attention</a>`}
      ${about && html`<span class="meta">config <span class="mono">${about.digest.slice(0, 8)}</span> ${about.config_mistakes.length ? html`<a class="bad" href="#/config">NOT IN USE</a>` : "ok"}</span><span class="meta">${about.workers} worker${about.workers > 1 ? "s" : ""}</span><span class="meta">values ${about.role === "reader" ? "are not shown to readers" : about.values === "off" ? "are not kept" : `are kept: ${about.values}`}</span>${about.role === "reader" ? html`<span>reader</span>` : ""}`}
      <span class="actions spring"><button type="button" onClick=${() => setTheme(other)}>theme: ${theme}</button><button type="button" aria-label="keys" onClick=${() => document.getElementById("keys").showModal()}>?</button>
      ${hasToken() && html`<button type="button" onClick=${() => { dropToken(); dispatchEvent(new Event("login")); }}>log out</button>`}</span></div>
      <nav aria-label="pages">${Object.entries(PAGES).map(([name, [text]]) => html`<a href=${`#/${name}`} aria-current=${name === page ? "page" : null}>${text}</a>`)}</nav></header>
    ${error && !error.status && html`<div class="banner" role="alert">The proxy does not answer. This page reconnects by itself.</div>`}
    ${about?.status === "draining" && html`<div class="banner" role="alert">The proxy is draining: it finishes its calls and shuts down.</div>`}
    <main id="main" tabindex="-1">${about ? html`<${Page} params=${params} role=${about.role} values=${about.values} />` : ""}</main><${Keys} />`;
}

takeToken();
addEventListener("keydown", takeKey);
render(html`<${Shell} />`, document.getElementById("root"));
