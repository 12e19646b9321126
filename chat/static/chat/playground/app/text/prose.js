// @ts-check
// Model text on the page, with what Markdown says of it. The parser is loaded with the first text.
import { html, useLayoutEffect, useRef } from "../../../vendor/preact.js";

/** @import { GrowingText } from "./growing.js" */

/** What is shown of a text until it is drawn, or its parser is there. */
const SHOWN_CHARS = 4000;

/** @type {Promise<[typeof import("./growing.js"), typeof import("./code.js")]> | undefined} */
let modules;

/** Load what draws texts, ahead of the first one. */
function loadProse() {
  modules ??= Promise.all([import("./growing.js"), import("./code.js")]);
  modules.catch(() => (modules = undefined)); // the network is away: the next text is another try
  return modules;
}

/** @param {{text: string, isWhole: boolean}} props */
export function Prose({ text, isWhole }) {
  const ref = useRef(/** @type {HTMLDivElement | null} */ (null));
  const growing = useRef(/** @type {GrowingText | null} */ (null));
  const latest = useRef({ text, isWhole });
  latest.current = { text, isWhole };
  // In layout effects, so that no frame shows the text missing.
  useLayoutEffect(() => {
    const node = /** @type {HTMLDivElement} */ (ref.current);
    loadProse().then(([{ GrowingText }, { actOnCode }]) => {
      growing.current = new GrowingText(node);
      growing.current.show(latest.current.text, latest.current.isWhole);
      node.addEventListener("click", actOnCode);
    });
  }, []);
  useLayoutEffect(() => {
    if (growing.current) growing.current.show(text, isWhole);
    else if (ref.current) ref.current.textContent = text.slice(0, SHOWN_CHARS);
  }, [text, isWhole]);
  return html`<div class="prose-text" ref=${ref}></div>`;
}
