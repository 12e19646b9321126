// @ts-check
// The tokens of an answer as buttons to be walked by arrow keys. Of a long list only the parts near those in sight are in the page.
import { html, useLayoutEffect, useMemo, useRef, useState } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { chunksOf, isSpecial, percent, probability, stepOf, visible, wholeText } from "./tokens.js";

/** @import { RefObject } from "../../../vendor/preact.js" */
/** @import { TokenLogprob } from "../core/types.js" */

const MAX_DRAWN_WHOLE = 2000;
/** How far beyond the sight of the reader parts of a long list are drawn. */
const AROUND = "400px 0px";
/** What a token takes of the height of a part that was not drawn yet: what is in sight should be guessed right, roughly. */
const GUESSED_PX = 2;

/** The list's element, and what moves the focus to a token of it. @param {number} current @param {(at: number) => void} setCurrent */
export function useWalk(current, setCurrent) {
  const list = useRef(/** @type {HTMLDivElement | null} */ (null));
  const wanted = useRef(-1);
  useLayoutEffect(() => {
    if (wanted.current !== current) return;
    wanted.current = -1;
    chipAt(list.current, current)?.focus();
  });
  const go = (/** @type {number} */ at) => {
    setCurrent(at);
    const chip = chipAt(list.current, at);
    if (chip) chip.focus();
    else wanted.current = at; // it is drawn with the part that has the current token
  };
  return { list, go };
}

/**
 * @param {{tokens: TokenLogprob[], list: RefObject<HTMLDivElement | null>, current: number, shown: number, hasNumbers: boolean, surpriseKeys: string,
 *   go: (at: number) => void, onCurrent: (at: number) => void, onHover: (at: number) => void}} props
 */
export function TokenList({ tokens, list, current, shown, hasNumbers, surpriseKeys: keys, go, onCurrent, onHover }) {
  const numTokens = tokens.length; // the list of a running answer grows in place
  const chunks = useMemo(() => chunksOf(tokens), [tokens, numTokens]);
  const here = chunks.findIndex(([, to]) => current < to);
  const pointer = useRef("");
  // Tokens that move beneath a mouse at rest are not pointed at.
  const point = (/** @type {PointerEvent} */ event) => {
    const place = `${event.screenX} ${event.screenY}`;
    if (event.pointerType === "mouse" && place !== pointer.current) onHover(numberOf(event) ?? -1);
    pointer.current = place;
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = keyTarget(event.key, current, numTokens, list.current);
    if (to === null) return;
    event.preventDefault();
    event.stopPropagation();
    go(to);
  };
  return html`<div class=${`tokens ${hasNumbers ? "has-numbers" : ""}`} role="group" aria-label=${keys ? t("Tokens; arrow keys walk, {keys} goes to the next surprising one", { keys }) : t("Tokens; arrow keys walk")} ref=${list}
    onKeyDown=${key} onFocusIn=${(/** @type {FocusEvent} */ event) => onCurrent(numberOf(event) ?? current)}
    onPointerMove=${point} onPointerLeave=${() => onHover(-1)}
    onClick=${(/** @type {MouseEvent} */ event) => onCurrent(numberOf(event) ?? current)}>
    ${chunks.map(([from, to], chunk) => html`<${Chunk} key=${from} tokens=${tokens} from=${from} to=${to} isVirtual=${numTokens > MAX_DRAWN_WHOLE} isNeeded=${Math.abs(chunk - here) <= 1}
      current=${chunk === here ? current : -1} shown=${shown >= from && shown < to ? shown : -1} />`)}
  </div>`;
}

/** The token that a key leads to, null for another key. @param {string} key @param {number} current @param {number} num @param {HTMLElement | null} list */
function keyTarget(key, current, num, list) {
  if (key === "ArrowRight") return Math.min(num - 1, current + 1);
  if (key === "ArrowLeft") return Math.max(0, current - 1);
  if (key === "Home") return 0;
  if (key === "End") return num - 1;
  if (key === "ArrowDown" || key === "ArrowUp") return lineTarget(list, current, key === "ArrowDown" ? 1 : -1);
  return null;
}

/** The token above or below. The parts beside that of the current one are drawn. @param {HTMLElement | null} list @param {number} current @param {1 | -1} step */
function lineTarget(list, current, step) {
  const boxAt = (/** @type {number} */ at) => chipAt(list, at)?.getBoundingClientRect();
  const here = boxAt(current);
  let best = current;
  let bestBox = /** @type {DOMRect | null} */ (null);
  for (let at = current + step, box = boxAt(at); here && box; at += step, box = boxAt(at)) {
    if (Math.abs(box.top - here.top) < 4) continue;
    if (bestBox && Math.abs(box.top - bestBox.top) >= 4) break;
    if (!bestBox || distance(box, here) < distance(bestBox, here)) [best, bestBox] = [at, box];
  }
  return best;
}

/** @param {DOMRect} box @param {DOMRect} other */
const distance = (box, other) => Math.abs(box.left + box.width / 2 - other.left - other.width / 2);

/** @param {HTMLElement | null} list @param {number} at @returns {HTMLElement | null | undefined} */
const chipAt = (list, at) => list?.querySelector(`[data-at="${at}"]`);

/** @param {Event} event */
function numberOf({ target }) {
  const at = target instanceof Element ? target.closest("[data-at]")?.getAttribute("data-at") : null;
  return at == null ? null : Number(at);
}

/**
 * Tokens that are drawn, and skipped while out of sight, together; of a long list they are in the page only while they are near, or needed for keys.
 * @param {{tokens: TokenLogprob[], from: number, to: number, isVirtual: boolean, isNeeded: boolean, current: number, shown: number}} props
 */
function Chunk({ tokens, from, to, isVirtual, isNeeded, current, shown }) {
  const [isNear, place] = useNear(isVirtual);
  const isDrawn = !isVirtual || isNeeded || isNear;
  const chips = useMemo(() => (isDrawn ? chipsOf(tokens, from, to, current, shown) : []), [tokens, from, to, current, shown, isDrawn]);
  return html`<div ref=${place} class=${`token-chunk ${isDrawn ? "" : "is-away"}`} style=${{ containIntrinsicHeight: `auto ${(to - from) * GUESSED_PX}px` }}>${chips}</div>`;
}

/** Whether an element is near what is in sight. @param {boolean} isWanted */
function useNear(isWanted) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [isNear, setNear] = useState(false);
  useLayoutEffect(() => {
    if (!place.current || !isWanted) return undefined;
    const observer = new IntersectionObserver((entries) => setNear(entries[entries.length - 1].isIntersecting), { root: scrollerOf(place.current), rootMargin: AROUND });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [isWanted]);
  return /** @type {const} */ ([isNear, place]);
}

/** What scrolls an element, null for the page. @param {Element} element @returns {Element | null} */
function scrollerOf(element) {
  const parent = element.parentElement;
  return !parent || ["auto", "scroll"].includes(getComputedStyle(parent).overflowY) ? parent : scrollerOf(parent);
}

/** @param {TokenLogprob[]} tokens @param {number} from @param {number} to @param {number} current @param {number} shown */
function chipsOf(tokens, from, to, current, shown) {
  const chips = [];
  for (let at = from; at < to; at += 1) {
    const token = tokens[at];
    const text = visible(token);
    const share = percent(probability(token));
    const marks = `${isSpecial(token) ? "is-special" : ""} ${at === shown ? "is-shown" : ""}`;
    chips.push(html`<button type="button" key=${at} class=${`token step-${stepOf(token)} ${marks}`} data-at=${at} data-share=${share}
      tabindex=${at === current ? 0 : -1} aria-label=${`${text}, ${share}`}>${text}</button>`);
    if (wholeText(token)?.includes("\n")) chips.push(html`<br key=${`${at}-line`} />`);
  }
  return chips;
}
