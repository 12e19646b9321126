// @ts-check
// Small parts that other views are made of.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";
import { copyText } from "../core/clipboard.js";
import { t } from "../core/i18n.js";
import { Icon } from "./icons.js";
import { place } from "./popover.js";

/** @import { ComponentChildren } from "../../../vendor/preact.js" */
/** @import { IconName } from "./icons.js" */

/**
 * A button with an icon. Its name is spoken and shown as a tooltip.
 * @param {{icon: IconName, label: string, onClick: (event: MouseEvent) => void, disabled?: boolean, pressed?: boolean, expanded?: boolean, class?: string,
 *   size?: number, id?: string, keys?: string}} props
 */
export function IconButton({ icon, label, onClick, disabled, pressed, expanded, class: name = "", size, id, keys }) {
  return html`<button type="button" id=${id} class=${`button button-quiet button-icon ${name}`} aria-label=${label} title=${keys ? `${label} (${keys})` : label}
    disabled=${disabled} aria-pressed=${pressed} aria-expanded=${expanded} onClick=${onClick}><${Icon} name=${icon} size=${size} /></button>`;
}

/**
 * Copies a text when it is pressed, and says how it went.
 * @param {{text: () => string, label?: string, class?: string, withText?: boolean}} props
 */
export function CopyButton({ text, label = t("Copy"), class: name = "", withText = false }) {
  const [result, setResult] = useState("");
  const copy = async () => {
    setResult((await copyText(text())) ? t("Copied") : t("Not allowed by the browser"));
    setTimeout(() => setResult(""), 1500);
  };
  return html`<button type="button" class=${`button button-quiet ${withText ? "button-small" : "button-icon"} ${name}`} aria-label=${withText ? undefined : result || label}
    title=${label} onClick=${copy}><${Icon} name=${result === t("Copied") ? "check" : "copy"} size=${16} />${withText && html`<span>${result || label}</span>`}</button>`;
}

/**
 * A box that opens beside its button, above all that would cut it off. Esc, a click elsewhere and the focus elsewhere close it; so does
 * a click on one of its acts.
 * @param {{label: string, icon?: IconName, button?: ComponentChildren, class?: string, align?: "left" | "right", children: ComponentChildren}} props
 */
export function Menu({ label, icon = "more", button, class: name = "", align = "right", children }) {
  const ref = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  // NOTE: cleaned up with the menu. An effect lives until the next frame, and would take an Esc from what comes after.
  useLayoutEffect(() => {
    const node = /** @type {HTMLDetailsElement} */ (ref.current);
    const close = (/** @type {Event} */ event) => {
      const isEscape = event instanceof KeyboardEvent;
      if (!node.open || (isEscape && event.key !== "Escape") || (!isEscape && node.contains(/** @type {Node} */ (event.target)))) return;
      node.open = false;
      if (!isEscape) return;
      event.stopPropagation();
      event.preventDefault(); // or a dialog around it closes as well
      node.querySelector("summary")?.focus();
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close, true);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close, true);
    };
  }, []);
  useEffect(() => {
    const [node, shown] = [/** @type {HTMLDetailsElement} */ (ref.current), /** @type {HTMLDivElement} */ (box.current)];
    const put = () => node.open && place(shown, /** @type {HTMLElement} */ (node.querySelector("summary")), align);
    const toggled = () => {
      if (!shown.isConnected) return;
      shown.togglePopover(node.open);
      put();
    };
    node.addEventListener("toggle", toggled);
    document.addEventListener("scroll", put, true);
    addEventListener("resize", put);
    return () => {
      node.removeEventListener("toggle", toggled);
      document.removeEventListener("scroll", put, true);
      removeEventListener("resize", put);
    };
  }, []);
  const acted = (/** @type {MouseEvent} */ event) => {
    const node = ref.current;
    if (!node || !(/** @type {Element} */ (event.target).closest("[data-act]"))) return; // the act may have removed the menu
    if (node.contains(document.activeElement)) node.querySelector("summary")?.focus(); // or it is lost with the box
    node.open = false;
  };
  const left = (/** @type {FocusEvent} */ event) => {
    const to = /** @type {Node | null} */ (event.relatedTarget);
    if (ref.current && to && !ref.current.contains(to)) ref.current.open = false;
  };
  return html`<details ref=${ref} class=${`menu ${name}`} onFocusOut=${left}>
    <summary class="button button-quiet button-icon" aria-label=${label} title=${label}>${button ?? html`<${Icon} name=${icon} />`}</summary>
    <div ref=${box} popover="manual" class="menu-box" onClick=${acted}>${children}</div>
  </details>`;
}

/**
 * An act in a menu.
 * @param {{icon?: IconName, onClick: () => void, disabled?: boolean, danger?: boolean, keys?: string, children: ComponentChildren}} props
 */
export function MenuAct({ icon, onClick, disabled, danger, keys, children }) {
  return html`<button type="button" data-act class=${`menu-act ${danger ? "is-danger" : ""}`} disabled=${disabled} onClick=${onClick}>
    ${icon && html`<${Icon} name=${icon} size=${16} />`}<span>${children}</span>${keys && html`<kbd>${keys}</kbd>`}</button>`;
}

/**
 * What makes a dialog modal while it is drawn: the browser keeps the focus in it, Esc and a press beside it close it, and the focus goes back.
 * @param {() => void} onClose
 * @param {() => void} [giveFocus] where what had it is gone
 */
export function useModal(onClose, giveFocus) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const leave = useRef(() => {});
  // NOTE: not sooner. The popover whose act has opened the dialog gives the focus back to its button first.
  useEffect(() => {
    const node = /** @type {HTMLDialogElement} */ (ref.current);
    const before = document.activeElement;
    node.showModal();
    node.addEventListener("close", onClose); // browsers may close it without asking
    leave.current = () => {
      node.removeEventListener("close", onClose);
      node.close();
      const isThere = before instanceof HTMLElement && before !== document.body && before.isConnected;
      const giveBack = () => (isThere ? before.focus({ preventScroll: true }) : giveFocus?.());
      giveBack();
      // A page that was covered can take the focus in the next frame.
      requestAnimationFrame(() => document.activeElement === document.body && giveBack());
    };
  }, []);
  // NOTE: not later. An effect ends some frames after its dialog, and would take the focus from what has got it meanwhile.
  useLayoutEffect(() => () => leave.current(), []);
  const onCancel = (/** @type {Event} */ event) => {
    if (event.target !== ref.current) return;
    event.preventDefault();
    onClose();
  };
  const onMouseDown = (/** @type {MouseEvent} */ event) => event.target === ref.current && onClose();
  return { ref, onCancel, onMouseDown };
}

/**
 * A modal dialog.
 * @param {{title: string, onClose: () => void, class?: string, children: ComponentChildren}} props
 */
export function Dialog({ title, onClose, class: name = "", children }) {
  return html`<dialog ...${useModal(onClose)} class=${`dialog ${name}`} aria-label=${title}>
    <div class="dialog-frame">
      <header class="dialog-head"><h2>${title}</h2><${IconButton} icon="close" label=${t("Close")} onClick=${onClose} /></header>
      <div class="dialog-body">${children}</div>
    </div>
  </dialog>`;
}

/**
 * Tabs by the pattern of WAI-ARIA: arrow keys move between them.
 * @param {{label: string, tabs: {id: string, title: string, mark?: boolean}[], current: string, onPick: (id: string) => void}} props
 */
export function Tabs({ label, tabs, current, onPick }) {
  const move = (/** @type {KeyboardEvent} */ event) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = tabs.findIndex(({ id }) => id === current);
    const to = (at + step + tabs.length) % tabs.length;
    onPick(tabs[to].id);
    /** @type {HTMLElement} */ (/** @type {HTMLElement} */ (event.currentTarget).children[to]).focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map(
      ({ id, title, mark }) => html`<button type="button" role="tab" key=${id} class="tab" aria-selected=${id === current} tabindex=${id === current ? 0 : -1}
        onClick=${() => onPick(id)}>${title}${mark && html`<span class="tab-mark" aria-label=${t("changed")}></span>`}</button>`,
    )}
  </div>`;
}
