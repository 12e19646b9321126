// @ts-check
// How wide the panes are: lines between them that are dragged, or moved by arrow keys.
import { html, signal, useRef } from "../../../vendor/preact.js";
import { storage } from "../core/app.js";
import { t } from "../core/i18n.js";
import { paneName, panes } from "./panes.js";

/** @import { Signal } from "../../../vendor/preact.js" */

const NAME = "pane-widths";
const MIN_PX = 272;
const STEP_PX = 24;

/** The shares of the room that panes take from left to right, by the number of panes. @type {Signal<Record<string, number[]>>} */
const widths = signal(storage.read("tab", NAME) ?? {});

const shares = () => widths.value[panes.value.length] ?? panes.value.map(() => 1);

/** The columns of the panes, and of the lines between them, as CSS has them. */
export const columns = () => shares().map((share) => `minmax(${MIN_PX}px, ${share}fr)`).join(" auto ");

/** @param {number[]} list */
function set(list) {
  widths.value = { ...widths.value, [list.length]: list };
  storage.write("tab", NAME, widths.value);
}

const reset = () => set(panes.value.map(() => 1));

/** Give a pane this width, as far as it and the next one keep the least one. @param {number} at which pane @param {number} width */
function resize(at, width) {
  // NOTE: as they are seen, as a pane of the least width may be wider than its share.
  const list = [...document.querySelectorAll(".panes > .pane")].map(widthOf);
  const both = list[at] + list[at + 1];
  list[at] = Math.min(Math.max(width, MIN_PX), both - MIN_PX);
  list[at + 1] = both - list[at];
  set(list);
}

/** @param {Element | null} node */
const widthOf = (node) => node?.getBoundingClientRect().width ?? 0;

/** The line behind a pane. Arrow keys move it, Home and End as far as it goes, and a double click makes all panes equal. @param {{at: number}} props */
export function PaneLine({ at }) {
  /** How far from the pane's edge the line was taken. */
  const taken = useRef(0);
  const [left, right] = shares().slice(at, at + 2);
  const key = (/** @type {KeyboardEvent} */ event) => {
    const line = /** @type {HTMLElement} */ (event.currentTarget);
    const now = widthOf(line.previousElementSibling);
    const to = { ArrowLeft: now - STEP_PX, ArrowRight: now + STEP_PX, Home: 0, End: Infinity }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    resize(at, to);
  };
  const take = (/** @type {PointerEvent} */ event) => {
    const line = /** @type {HTMLElement} */ (event.currentTarget);
    if (event.button !== 0) return;
    line.setPointerCapture(event.pointerId);
    taken.current = event.clientX - widthOf(line.previousElementSibling);
  };
  const drag = (/** @type {PointerEvent} */ event) => {
    const line = /** @type {HTMLElement} */ (event.currentTarget);
    if (line.hasPointerCapture(event.pointerId)) resize(at, event.clientX - taken.current);
  };
  return html`<div class="pane-line" role="separator" tabindex="0" aria-orientation="vertical" aria-controls=${`pane-${at + 1}`} aria-label=${t("Width of {pane}", { pane: paneName(at) })}
    aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round((100 * left) / (left + right))} title=${t("Drag it, or use the arrow keys; a double click makes all panes equal")}
    onKeyDown=${key} onPointerDown=${take} onPointerMove=${drag} onDblClick=${reset}></div>`;
}
