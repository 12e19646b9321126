// @ts-check
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { dialog, isPhone, panelIsOpen, sidebarIsOpen, togglePanel, toggleSidebar } from "./layers.js";

/** Esc closes what lies over the page, then what is edited, and stops the answer last. */
export function escape() {
  if (dialog.value) return;
  if (app.editing.value) acts.leaveEdit(app.chat.value);
  else if (isPhone.value && (sidebarIsOpen.value || panelIsOpen.value)) {
    toggleSidebar(false);
    togglePanel(false);
  } else acts.stop(app.chat.value);
}
