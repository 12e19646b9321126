// @ts-check
// Which chats are picked, in the list and in what was found: one by one, a row of them, or all that are shown.
import { html } from "../../../vendor/preact.js";
import { titleOf } from "../core/chat_list.js";
import { picked, view } from "./state.js";

/** @import { ChatFacts } from "../core/types.js" */

/** Where a row of picks begins. */
let last = "";

export function startPicking() {
  last = "";
  picked.value = new Set();
  view.value = "current";
}

const shownIds = () => [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".sidebar [data-pick]"))].map((row) => row.dataset.pick ?? "");

/** Pick all chats that are shown, or none if all are picked. */
export function pickShown() {
  const shown = shownIds();
  const isAll = shown.every((id) => picked.value?.has(id));
  picked.value = new Set(isAll ? [] : [...(picked.value ?? []), ...shown]);
}

/** @param {string} id @param {boolean} isPicked @param {boolean} isRow from the chat that was picked last to this one */
function pick(id, isPicked, isRow) {
  const shown = shownIds();
  const [from, to] = [shown.indexOf(last), shown.indexOf(id)].sort((a, b) => a - b);
  const ids = isRow && from >= 0 ? shown.slice(from, to + 1) : [id];
  const now = new Set(picked.value);
  for (const each of ids) {
    if (isPicked) now.add(each);
    else now.delete(each);
  }
  picked.value = now;
  last = id;
}

/** A chat that can be picked. With Shift so are those between it and the last one. @param {{facts: ChatFacts}} props */
export function PickLabel({ facts }) {
  let isRow = false;
  const note = (/** @type {MouseEvent | KeyboardEvent} */ event) => (isRow = event.shiftKey);
  const change = (/** @type {any} */ event) => pick(facts.id, event.target.checked, isRow);
  return html`<label class="chat-link chat-pick" data-pick=${facts.id} onPointerDown=${note} onKeyDown=${note}>
    <input type="checkbox" data-stop checked=${picked.value?.has(facts.id) ?? false} onChange=${change} /><span class="chat-title">${titleOf(facts)}</span></label>`;
}
