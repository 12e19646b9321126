// @ts-check
// A box over the page that belongs to a button. Esc and a press elsewhere close it; the focus goes back to the button.
import { html, useEffect, useRef } from "../../../vendor/preact.js";

/** @import { ComponentChildren } from "../../../vendor/preact.js" */

const GAP = 6;
const MARGIN = 8;

/**
 * @param {{anchor: HTMLElement, onClose: () => void, class?: string, align?: "left" | "right", focus?: string, children: ComponentChildren}} props
 *   `focus`: a selector of what gets the focus at first
 */
export function Popover({ anchor, onClose, class: name = "", align = "left", focus = "[role^=menuitem]", children }) {
  const ref = useRef(/** @type {HTMLDivElement | null} */ (null));
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const box = /** @type {HTMLDivElement} */ (ref.current);
    box.showPopover();
    place(box, anchor, align);
    /** @type {HTMLElement | null} */ (box.querySelector(focus) ?? box.querySelector("button, a, input"))?.focus({ preventScroll: true });
    const press = (/** @type {Event} */ event) => {
      const target = /** @type {Node} */ (event.target);
      if (!box.contains(target) && !anchor.contains(target)) close.current();
    };
    const resize = () => place(box, anchor, align);
    document.addEventListener("pointerdown", press);
    addEventListener("resize", resize);
    return () => {
      document.removeEventListener("pointerdown", press);
      removeEventListener("resize", resize);
      if (anchor.isConnected && (box.contains(document.activeElement) || document.activeElement === document.body)) anchor.focus({ preventScroll: true });
    };
  }, []);
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" && event.key !== "Tab") return;
    if (event.key === "Escape") event.preventDefault();
    event.stopPropagation();
    anchor.focus({ preventScroll: true });
    onClose();
  };
  return html`<div ref=${ref} popover="manual" class=${`popover ${name}`} onKeyDown=${key}>${children}</div>`;
}

/** Put a box below its button, or above it where there is more room. @param {HTMLElement} box @param {HTMLElement} anchor @param {"left" | "right"} align */
export function place(box, anchor, align) {
  const at = anchor.getBoundingClientRect();
  const below = innerHeight - at.bottom - GAP - MARGIN;
  const above = at.top - GAP - MARGIN;
  const isBelow = below >= Math.min(box.scrollHeight, 320) || below >= above;
  const left = align === "left" ? at.left : at.right - box.offsetWidth;
  box.style.maxHeight = `${isBelow ? below : above}px`;
  box.style.left = `${Math.max(MARGIN, Math.min(left, innerWidth - box.offsetWidth - MARGIN))}px`;
  box.style.top = isBelow ? `${at.bottom + GAP}px` : "auto";
  box.style.bottom = isBelow ? "auto" : `${innerHeight - at.top + GAP}px`;
}

/** Arrow keys, Home and End move the focus between the acts of a menu. @param {KeyboardEvent} event */
export function moveInMenu(event) {
  const menu = /** @type {HTMLElement} */ (event.currentTarget);
  const acts = /** @type {HTMLElement[]} */ ([...menu.querySelectorAll("[role^=menuitem]:not(:disabled)")]);
  const at = acts.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const places = { ArrowDown: at + 1, ArrowUp: at < 0 ? -1 : at - 1, Home: 0, End: -1 };
  if (!(event.key in places) || acts.length === 0) return;
  event.preventDefault();
  event.stopPropagation();
  acts.at(places[/** @type {keyof typeof places} */ (event.key)] % acts.length)?.focus();
}
