// @ts-check
import { html, useLayoutEffect, useRef } from "../../../vendor/preact.js";
import { plural, t } from "../core/i18n.js";

/** @import { Usage } from "../core/types.js" */

/** What the model thought: open while it grows, closed once the answer begins; the reader may open it again. @param {{text: string, isGrowing: boolean, usage?: Usage}} props */
export function Reasoning({ text, isGrowing, usage }) {
  const ref = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  useLayoutEffect(() => {
    if (ref.current) ref.current.open = isGrowing;
  }, [isGrowing]);
  const tokens = usage?.reasoning_tokens ? ` · ${plural(usage.reasoning_tokens, "one token", "{n} tokens")}` : "";
  return html`<details class="thoughts" ref=${ref}><summary>${isGrowing ? t("Thinking") : t("Reasoning")}${tokens}</summary><div class="thoughts-text">${text}</div></details>`;
}
