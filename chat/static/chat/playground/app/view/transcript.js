// @ts-check
// The messages that are shown. The newest stays in sight while the reader is at the end.
import { html, useEffect, useRef, useState } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { Message } from "./message.js";
import { Following } from "./following.js";
import { SystemPrompt } from "./system_prompt.js";
import { Welcome } from "./welcome.js";

/** @import { Chat } from "../core/chat.js" */

/** How many of the last messages are drawn at once, and how many more in each frame: hundreds in one would hold the page up. */
const [FIRST, MORE] = [16, 10];

/** How many of a chat's messages to draw now. @param {Chat} open @param {number} numTurns */
function useNumDrawn({ id }, numTurns) {
  const [drawn, setDrawn] = useState({ id, num: FIRST });
  const num = drawn.id === id ? drawn.num : FIRST;
  useEffect(() => {
    if (num === Infinity) return;
    const next = num >= numTurns ? Infinity : num + MORE;
    const frame = requestAnimationFrame(() => setDrawn({ id, num: next }));
    return () => cancelAnimationFrame(frame);
  }, [id, num, numTurns]);
  return num;
}

/** @param {{open: Chat, id?: string}} props */
export function Transcript({ open, id = "conversation" }) {
  const area = useRef(/** @type {HTMLElement | null} */ (null));
  const list = useRef(/** @type {HTMLOListElement | null} */ (null));
  const following = useRef(/** @type {Following | null} */ (null));
  const [isAtEnd, setAtEnd] = useState(true);
  const path = open.path.value;
  useEffect(() => {
    following.current = new Following(/** @type {HTMLElement} */ (area.current), /** @type {HTMLElement} */ (list.current), setAtEnd);
    return () => following.current?.end();
  }, []);
  const numTurns = path.length;
  const numDrawn = useNumDrawn(open, numTurns);
  useEffect(() => following.current?.toEnd(), [open.id, numTurns]);
  return html`<div class="conversation-frame">
    <main class="conversation" id=${id} ref=${area} tabindex="-1" aria-label=${t("Conversation")}>
      <h1 class="visually-hidden">${open.title.value || t("New chat")}</h1>
      ${path.length === 0 && html`<${Welcome} open=${open} />`}
      ${path.length > 0 && html`<${SystemPrompt} open=${open} />`}
      <ol class="messages" id="messages" ref=${list} aria-label=${t("Messages")} aria-busy=${numDrawn < numTurns}>
        ${path.slice(-numDrawn).map((turn) => html`<${Message} key=${turn.id} open=${open} turn=${turn} isLast=${turn === path.at(-1)} />`)}
      </ol>
    </main>
    ${!isAtEnd && html`<button class="button jump" type="button" onClick=${() => following.current?.toEnd()}>${t("Jump to the newest")}</button>`}
  </div>`;
}
