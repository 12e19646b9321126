// @ts-check
// Where on the page the reader is, and how they get elsewhere.
import * as app from "../core/app.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */

/**
 * @typedef {object} Place
 * @property {Chat} open
 * @property {Turn} [turn] the message that has the focus
 * @property {HTMLElement} [row] the chat of the list that has it
 * @property {HTMLElement} [tokens] the token view that has it
 */

/** @param {string} selector */
const around = (selector) => /** @type {HTMLElement | undefined} */ (document.activeElement?.closest(selector) ?? undefined);

/** @returns {Place} */
export function placeNow() {
  const row = around(".chat-row[data-chat]");
  const id = around("[data-turn]")?.dataset.turn;
  if (!id) return { open: app.chat.value, row };
  const open = [app.chat.value, ...app.openChats.values()].find((chat) => chat.find(id)) ?? app.chat.value;
  return { open, turn: open.find(id), tokens: around(".token-view") };
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

export const focusMessageBox = () => document.getElementById("composer-text")?.focus();

/** Go up or down from message to message; below the last is the message box. @param {number} step */
export function stepMessage(step) {
  const all = messages();
  const current = document.activeElement?.closest("[data-turn]");
  const at = current ? all.indexOf(current) + step : step < 0 ? all.length - 1 : all.length;
  if (at >= all.length) focusMessageBox();
  else focus(all[Math.max(0, at)]);
}
