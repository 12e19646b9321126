// @ts-check
// The messages that are shown. The newest stays in sight while the reader is at the end.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { Message } from "./message.js";
import { Following } from "./following.js";
import { useKeptPlace } from "./kept_place.js";
import { SystemPrompt } from "./system_prompt.js";
import { Welcome } from "./welcome.js";

/** @import { RefObject } from "../../../vendor/preact.js" */
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

/** @param {{open: Chat}} props */
export function Transcript({ open }) {
  const { area, list, following, jump } = useNewest(open);
  useKeptPlace(open.id, area, following);
  return html`<div class="conversation-frame">
    <main class="conversation" id="conversation" ref=${area} tabindex="-1" aria-label=${t("Conversation")}>
      <h1 class="visually-hidden">${open.title.value || t("New chat")}</h1>
      ${open.isEmpty.value ? html`<${Welcome} open=${open} />` : html`<${SystemPrompt} open=${open} />`}
      <${MessageList} open=${open} list=${list} id="messages" label=${t("Messages")} />
    </main>
    ${jump}
  </div>`;
}

/** What keeps the newest message of a chat in sight: refs for the area that scrolls and the list in it, and a button for whoever has scrolled up. @param {Chat} open */
export function useNewest(open) {
  const area = useRef(/** @type {HTMLElement | null} */ (null));
  const list = useRef(/** @type {HTMLOListElement | null} */ (null));
  const following = useRef(/** @type {Following | null} */ (null));
  const [isAtEnd, setAtEnd] = useState(true);
  useLayoutEffect(() => {
    following.current = new Following(/** @type {HTMLElement} */ (area.current), /** @type {HTMLElement} */ (list.current), setAtEnd);
    return () => following.current?.end();
  }, []);
  const toEnd = () => following.current?.toEnd();
  useLayoutEffect(toEnd, [open.id, open.path.value.length]);
  const jump = !isAtEnd && html`<button class="button jump" type="button" onClick=${toEnd}>${t("Jump to the newest")}</button>`;
  return { area, list, following, jump };
}

/** @param {{open: Chat, list: RefObject<HTMLOListElement | null>, id: string, label: string}} props */
export function MessageList({ open, list, id, label }) {
  const path = open.path.value;
  const numDrawn = useNumDrawn(open, path.length);
  return html`<ol class="messages" id=${id} ref=${list} aria-label=${label} aria-busy=${numDrawn < path.length}>
    ${path.slice(-numDrawn).map((turn) => html`<${Message} key=${turn.id} open=${open} turn=${turn} isLast=${turn === path.at(-1)} />`)}
  </ol>`;
}
