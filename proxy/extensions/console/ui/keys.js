// The keys: `/` goes to the filters of the calls, `j` and `k` to the next and the previous call, `?` shows this list.
import { html } from "./parts.js";

const KEYS = [["/", "find calls"], ["j", "next call"], ["k", "previous call"], ["Enter", "open or close the call"], ["?", "show the keys"]];

// The field of the page "Calls" is focused once that page is drawn, where `/` was pressed on another page.
let waiting = false;
function focusSearch() {
  const input = document.getElementById("filter-text");
  if (input) {
    input.closest("details").open = true;
    input.focus();
  }
  return !!input;
}
export function focusIfAsked() {
  if (waiting) waiting = !focusSearch();
}

export function takeKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const calls = [...document.querySelectorAll(".call")], now = calls.indexOf(document.activeElement.closest("li")?.querySelector(".call"));
  if (event.key === "/") {
    if (!focusSearch()) {
      location.hash = "#/calls";
      waiting = true;
    }
  } else if (event.key === "j") calls[Math.min(now + 1, calls.length - 1)]?.focus();
  else if (event.key === "k") calls[Math.max(now - 1, 0)]?.focus();
  else if (event.key === "?") document.getElementById("keys").showModal();
  else return;
  event.preventDefault();
}

export const Keys = () => html`<dialog id="keys" aria-label="keys"><table><tbody>${KEYS.map(([key, does]) => html`<tr><th scope="row"><kbd>${key}</kbd></th><td>${does}</td></tr>`)}</tbody></table><button type="button" onClick=${(event) => event.target.closest("dialog").close()}>close</button></dialog>`;
