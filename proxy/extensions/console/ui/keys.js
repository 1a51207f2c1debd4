// The keys: `/` goes to the search of the calls, `s` to their order, `j` and `k` to the next and the previous call, `?` shows this list.
import { html } from "./parts.js";

const FIELDS = { "/": "search", s: "filter-sort" };
const KEYS = [["/", "find calls"], ["j", "next call"], ["k", "previous call"], ["s", "order of the calls"], ["Enter", "open or close the call"], ["?", "show the keys"]];

// The field of the page "Calls" is focused once that page is drawn, where its key was pressed on another page.
let waiting = "";
function focusFilter(id) {
  const input = document.getElementById(id);
  if (input) {
    input.focus();
  }
  return !!input;
}
export function focusIfAsked() {
  if (waiting && focusFilter(waiting)) waiting = "";
}

export function takeKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const calls = [...document.querySelectorAll(".call")], now = calls.indexOf(document.activeElement.closest("li")?.querySelector(".call"));
  if (Object.hasOwn(FIELDS, event.key)) {
    if (!focusFilter(FIELDS[event.key])) {
      location.hash = "#/calls";
      waiting = FIELDS[event.key];
    }
  } else if (event.key === "j") calls[Math.min(now + 1, calls.length - 1)]?.focus();
  else if (event.key === "k") calls[Math.max(now - 1, 0)]?.focus();
  else if (event.key === "?") document.getElementById("keys").showModal();
  else return;
  event.preventDefault();
}

export const Keys = () => html`<dialog id="keys" aria-label="keys"><table><tbody>${KEYS.map(([key, does]) => html`<tr><th scope="row"><kbd>${key}</kbd></th><td>${does}</td></tr>`)}</tbody></table><button type="button" onClick=${(event) => event.target.closest("dialog").close()}>close</button></dialog>`;
