// @ts-check
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { dialog, isPhone, panelIsOpen, sidebarIsOpen, togglePanel, toggleSidebar } from "./layers.js";

/** Esc closes what lies over the page, then what is edited, and stops the answer last. */
export function escape() {
  if (dialog.value) return;
  const edited = chatWithForm();
  if (edited) acts.leaveEdit(edited);
  else if (isPhone.value && (sidebarIsOpen.value || panelIsOpen.value)) {
    toggleSidebar(false);
    togglePanel(false);
  } else acts.stop(app.chat.value);
}

/** The chat in which the form of a turn is in sight. */
const chatWithForm = () => [app.chat.value, ...app.openChats.values()].find((open) => open.path.value.some(({ id }) => id === app.editing.value));
