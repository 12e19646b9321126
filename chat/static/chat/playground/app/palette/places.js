// @ts-check
// Where on the page the reader is, and how they get elsewhere.
import * as app from "../core/app.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */

/** @typedef {{open: Chat, turn?: Turn}} Place `turn`: the message that has the focus */

/** @returns {Place} */
export function placeNow() {
  const id = document.activeElement?.closest("[data-turn]")?.getAttribute("data-turn");
  if (!id) return { open: app.chat.value };
  const open = [app.chat.value, ...app.openChats.values()].find((chat) => chat.find(id)) ?? app.chat.value;
  return { open, turn: open.find(id) };
}

/** Whether keys write something there. @param {EventTarget | null} target */
export const isField = (target) => target instanceof Element && target.closest("input:not([type='checkbox'], [type='radio'], [type='button'], [type='file']), textarea, select, [contenteditable='true']") !== null;

/** Give the focus to the first element that matches once the page is drawn. @param {string} selector */
export function focusSoon(selector) {
  requestAnimationFrame(() => requestAnimationFrame(() => focus(document.querySelector(selector))));
}

/** @param {string} turnId */
export const showTurn = (turnId) => focusSoon(`[data-turn="${CSS.escape(turnId)}"]`);

/** @param {Element | null | undefined} node */
function focus(node) {
  if (!(node instanceof HTMLElement)) return;
  node.focus({ preventScroll: true });
  node.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** The messages beside the focus: of its pane, where chats are compared. @returns {Element[]} */
function messages() {
  const pane = document.activeElement?.closest("[data-pane]") ?? document.querySelector("[data-pane].is-active") ?? document;
  return [...pane.querySelectorAll("[data-turn]")];
}

/** Go to the last message. */
export const focusMessages = () => focus(messages().at(-1) ?? document.getElementById("conversation"));

/** Go up or down from message to message; below the last is the message box. @param {number} step */
export function stepMessage(step) {
  const all = messages();
  const current = document.activeElement?.closest("[data-turn]");
  const at = current ? all.indexOf(current) + step : step < 0 ? all.length - 1 : all.length;
  if (at >= all.length) document.getElementById("composer-text")?.focus();
  else focus(all[Math.max(0, at)]);
}
