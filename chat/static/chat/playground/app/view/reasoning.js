// @ts-check
import { html, useLayoutEffect, useRef } from "../../../vendor/preact.js";
import { number, plural, t } from "../core/i18n.js";

/** Characters that a token has in most languages, to say about how many there are before the server does. */
const CHARS_PER_TOKEN = 4;

/**
 * What the model thought: open while it grows, closed once the answer begins; the reader may open it again.
 * @param {{text: string, isGrowing: boolean, at?: [number, number], numTokens?: number}} props `at`: when it began and when it grew last, in ms;
 *   `numTokens`: as the server counts them
 */
export function Reasoning({ text, isGrowing, at, numTokens }) {
  const ref = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  useLayoutEffect(() => {
    if (ref.current) ref.current.open = isGrowing;
  }, [isGrowing]);
  const estimate = () => `~ ${plural(Math.ceil(text.length / CHARS_PER_TOKEN), "one token", "{n} tokens")}`;
  const figures = [numTokens ? plural(numTokens, "one token", "{n} tokens") : estimate()];
  if (at) figures.push(`${number((at[1] - at[0]) / 1000, { minimumFractionDigits: 1, maximumFractionDigits: 1 })} s`);
  return html`<details class="thoughts" ref=${ref}><summary>${[isGrowing ? t("Thinking") : t("Reasoning"), ...figures].join(" · ")}</summary><div class="thoughts-text">${text}</div></details>`;
}
