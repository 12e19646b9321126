// @ts-check
import * as acts from "../core/acts.js";
import { isPhone, toggleSidebar } from "../view/layers.js";

/** Open a chat in this page, unless the browser is asked for another tab. @param {MouseEvent} event @param {string} id @param {string} [turnId] */
export function openHere(event, id, turnId) {
  if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  openAt(id, turnId);
}

/** Show a chat, and a message of it. @param {string} id @param {string} [turnId] */
export async function openAt(id, turnId) {
  const isOpen = await acts.openChat(id, turnId);
  if (!isOpen) return;
  if (isPhone.value) toggleSidebar(false);
  if (turnId) requestAnimationFrame(() => requestAnimationFrame(() => reveal(turnId)));
}

/** Bring a message into sight and give it the focus. @param {string} turnId */
function reveal(turnId) {
  const message = /** @type {HTMLElement | null} */ (document.querySelector(`[data-turn="${CSS.escape(turnId)}"]`));
  if (!message) {
    if (document.querySelector(".messages[aria-busy=true]")) requestAnimationFrame(() => reveal(turnId));
    return;
  }
  message.focus({ preventScroll: true });
  message.scrollIntoView({ block: "center" });
  // NOTE: the conversation follows its end until it hears of a scroll, and the browser tells it only with the next frame.
  message.closest(".conversation")?.dispatchEvent(new Event("scroll"));
}
