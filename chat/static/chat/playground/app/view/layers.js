// @ts-check
// What lies over the page: one dialog at a time, and which side columns are open.
import { effect, signal } from "../../../vendor/preact.js";
import { readState, storage, writeState } from "../core/app.js";

/** @import { ComponentChildren, Signal } from "../../../vendor/preact.js" */

/** Draws the open dialog; null if there is none. @type {Signal<(() => ComponentChildren) | null>} */
export const dialog = signal(null);

/** @param {() => ComponentChildren} draw */
export const openDialog = (draw) => (dialog.value = draw);
export const closeDialog = () => (dialog.value = null);

const isWide = matchMedia("(min-width: 901px)");
export const isPhone = signal(!isWide.matches);
isWide.addEventListener("change", () => {
  isPhone.value = !isWide.matches;
  sidebarIsOpen.value = panelIsOpen.value = false;
  if (isWide.matches) openKept();
});

export const sidebarIsOpen = signal(false);
export const panelIsOpen = signal(false);
/** Which tab of the panel is shown. */
export const panelTab = signal(String(storage.read("tab", "panel-tab") ?? "parameters"));
effect(() => void storage.write("tab", "panel-tab", panelTab.value));

function openKept() {
  sidebarIsOpen.value = readState("sidebar") !== false;
  panelIsOpen.value = readState("panel") === true;
}
if (isWide.matches) openKept();

/** Open or close the left column, which a wide page remembers. @param {boolean} [open] */
export function toggleSidebar(open = !sidebarIsOpen.value) {
  sidebarIsOpen.value = open;
  if (isWide.matches) writeState("sidebar", open);
}

/** Open or close the right column. @param {boolean} [open] @param {string} [tab] */
export function togglePanel(open = !panelIsOpen.value, tab) {
  if (tab) panelTab.value = tab;
  panelIsOpen.value = open;
  if (isWide.matches) writeState("panel", open);
}
