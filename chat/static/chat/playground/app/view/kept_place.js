// @ts-check
// Where somebody was reading who had scrolled up: a reload of the page shows the same lines.
import { useLayoutEffect } from "../../../vendor/preact.js";
import { storage } from "../core/app.js";

/** @import { RefObject } from "../../../vendor/preact.js" */
/** @import { Following } from "./following.js" */

/** The message at the upper edge, and how far below that edge it begins. @typedef {{chat: string, turn: string, top: number}} Place */

const NAME = "place";
/** So many frames the message is waited for, until long chats are drawn. */
const MAX_FRAMES = 600;

/** @param {string} chat @param {RefObject<HTMLElement | null>} area @param {RefObject<Following | null>} following */
export function useKeptPlace(chat, area, following) {
  useLayoutEffect(() => {
    const keep = () => {
      // Before the chat is there the place of it that was kept is still to be shown.
      if (area.current?.querySelector("[data-turn]")) storage.write("tab", NAME, placeIn(chat, area.current, following.current));
    };
    addEventListener("pagehide", keep);
    return () => removeEventListener("pagehide", keep);
  }, [chat]);
  useLayoutEffect(() => {
    const place = /** @type {Place | null} */ (storage.read("tab", NAME));
    if (place?.chat !== chat) return;
    storage.write("tab", NAME, null);
    let [frame, numLeft] = [0, MAX_FRAMES];
    const look = () => {
      const message = area.current?.querySelector(`[data-turn="${CSS.escape(place.turn)}"]`);
      if (message) following.current?.stayAt(message, place.top);
      else if (numLeft-- > 0) frame = requestAnimationFrame(look);
    };
    look();
    return () => cancelAnimationFrame(frame);
  }, [chat]);
}

/** @param {string} chat @param {HTMLElement | null} area @param {Following | null} following @returns {Place | null} */
function placeIn(chat, area, following) {
  if (!area || !following || following.isAtEnd) return null;
  const edge = area.getBoundingClientRect().top;
  const message = [...area.querySelectorAll("[data-turn]")].find((one) => one.getBoundingClientRect().bottom > edge);
  if (!(message instanceof HTMLElement)) return null;
  return { chat, turn: message.dataset.turn ?? "", top: message.getBoundingClientRect().top - edge };
}
